package gvisor

import (
	"errors"
	"io/fs"
	"os/exec"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
)

// TestUnnamedFilesOfEndedSentry: a sentry that has ended, but is still in the
// process table, counts as gone. So a sandbox that ends during a measurement is no
// fault.
func TestUnnamedFilesOfEndedSentry(t *testing.T) {
	for range 50 {
		cmd := exec.Command("/bin/true")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Wait() }) // until then it is a zombie
		var err error
		for end := time.Now().Add(2 * time.Second); !driver.IsGone(err); {
			if _, err = unnamedFiles(t.Context(), cmd.Process.Pid, []string{t.TempDir()}); errors.Is(err, fs.ErrPermission) {
				t.Fatalf("while it ends: %v", err)
			}
			if time.Now().After(end) {
				t.Fatalf("%v; want an error that the box is gone", err)
			}
		}
	}
}
