package update

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestDisk has a disk that is full, and one that cannot be written to.
func TestDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small disk")
	}
	w := newWorld(t)
	dir := filepath.Dir(w.updater.Path)
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=128k"); err != nil {
		t.Skipf("mount a small disk: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(w.updater.Path, program("v1.0.0"), 0o755); err != nil {
		t.Fatal(err)
	}
	noise := make([]byte, 100<<10)
	if _, err := rand.Read(noise); err != nil {
		t.Fatal(err)
	}
	large := bytes.Join([][]byte{program("v1.1.0"), []byte("exit\n"), []byte(hex.EncodeToString(noise))}, nil)
	w.release("v1.1.0", published, large)
	if _, err := w.updater.Update(t.Context(), false); !errors.Is(err, sandbox.Unavailable) || !errors.Is(err, unix.ENOSPC) {
		t.Errorf("on a full disk: %v", err)
	}
	w.want("v1.0.0")

	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := w.updater.Update(t.Context(), false); !errors.Is(err, unix.EROFS) || sandbox.HintOf(err) == "" {
		t.Errorf("on a disk that is read-only: %v, hint %q", err, sandbox.HintOf(err))
	}
	w.want("v1.0.0")
}
