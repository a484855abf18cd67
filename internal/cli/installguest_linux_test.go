package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver/container"
	"github.com/glovebox-dev/glovebox/internal/guestbin"
)

// TestInstallGuest runs the command of the init container, as the driver writes it. The
// image of Glovebox has this program, and not the guest's.
func TestInstallGuest(t *testing.T) {
	dir, scratch := t.TempDir(), t.TempDir()
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(dir, "closed"), 0o700) }) // else an ordinary user cannot remove it
	var said bytes.Buffer
	p := &program{Streams: Streams{Out: &said, Err: &said, Getenv: func(string) string { return "" }}}
	if status := run(t.Context(), container.InstallArgs(dir, "755:"+scratch), p); status != 0 {
		t.Fatalf("exit status %d: %s", status, &said)
	}
	for _, path := range []string{filepath.Join(dir, guestbin.Name), filepath.Join(dir, "resolv.linked.conf"), filepath.Join(scratch, "own")} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}
