package gvisor_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
)

// TestOrphans removes the state directory of a box whose supervisor was killed. The
// driver of another state directory finds the box's sentry, and kills it when told to.
func TestOrphans(t *testing.T) {
	_, d := open(t)
	dir, err := os.MkdirTemp("", "orphan")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	owner, err := harness.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	spec := harness.Spec()
	spec.Detached = true
	b, err := owner.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	lives := drivertest.Launch(t, d, harness.Spec())
	found := func(remove bool) bool {
		t.Helper()
		// Control groups of other boxes of this machine are none of this test's.
		names, err := driver.Leftovers(t.Context(), d, remove)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(names, "\n")
		if strings.Contains(text, lives.Ref()) {
			t.Errorf("a living box is a leftover: %s", text)
		}
		return strings.Contains(text, "of "+b.Ref())
	}
	if found(false) {
		t.Error("a box with a directory is a leftover")
	}
	// Another mount namespace, or a move, hides the directory from the other driver.
	state := filepath.Join(dir, "gvisor")
	if err := os.Rename(state, state+"-hidden"); err != nil {
		t.Fatal(err)
	}
	if found(true) {
		t.Error("the box of a supervisor that lives is a leftover")
	}
	if len(hostProcesses(t, dir, b.Ref())) == 0 {
		t.Fatal("the sentry of a supervisor that lives was killed")
	}
	if err := os.Rename(state+"-hidden", state); err != nil {
		t.Fatal(err)
	}
	sentry := sentryOf(t, dir, b.Ref())
	if err := syscall.Kill(parent(t, sentry), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := owner.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "gvisor")); err != nil {
		t.Fatal(err)
	}
	// Only the sentry is killed, not every process with the box's name.
	namesake := exec.Command("/bin/sh")
	namesake.Args = []string{"runsc-sandbox", "-c", "read line", b.Ref()}
	hold, err := namesake.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := namesake.Start(); err != nil {
		t.Fatal(err)
	}
	if !found(false) || !found(true) {
		t.Error("the sentry of a box without a directory is not found")
	}
	if err := hold.Close(); err != nil {
		t.Error(err)
	}
	var status *exec.ExitError
	if err := namesake.Wait(); errors.As(err, &status) && !status.Exited() {
		t.Errorf("another process with the name of the box: %v", err)
	}
	if pids := hostProcesses(t, dir, b.Ref()); len(pids) > 0 {
		t.Errorf("processes %v are left", pids)
	}
	if found(false) {
		t.Error("the sentry is found again")
	}
	for _, path := range emptyGroups(t) {
		if filepath.Base(path) == b.Ref() {
			if err := os.Remove(path); err != nil {
				t.Error(err)
			}
		}
	}
}
