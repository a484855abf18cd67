package gvisor

import (
	"os/exec"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
)

// TestUnnamedFilesOfEndedSentry: a sentry that has ended, but is still in the
// process table, counts as gone. So a sandbox that ends during a measurement is no
// fault.
func TestUnnamedFilesOfEndedSentry(t *testing.T) {
	cmd := exec.Command("/bin/true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // until then it is a zombie
	var err error
	for range 100 {
		if _, err = unnamedFiles(t.Context(), cmd.Process.Pid, []string{t.TempDir()}); driver.IsGone(err) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("%v; want an error that the box is gone", err)
}
