package gvisor

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/process"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestOrphansOfContainer has a process with the arguments of a sentry, whose
// directory this process does not see. It is an orphan, except in a PID namespace.
func TestOrphansOfContainer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a PID namespace")
	}
	for name, flags := range map[string]uintptr{"here": 0, "container": syscall.CLONE_NEWPID} {
		t.Run(name, func(t *testing.T) {
			id := sandbox.NewID()
			cmd := exec.Command("/bin/bash", "-c", `exec 3<&0; (exec -a runsc-sandbox /bin/sh -c 'read line' "$0") <&3 & wait`,
				"--root="+filepath.Join("/nowhere/gvisor/boxes", id))
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
			hold, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				hold.Close()
				_ = cmd.Wait() // the status is that of read at the end of file
			}()
			for deadline := time.Now().Add(10 * time.Second); len(process.OfBox(id)) == 0; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the process does not start")
				}
			}
			orphans, err := findOrphans(nil)
			if err != nil {
				t.Fatal(err)
			}
			found := slices.ContainsFunc(orphans, func(o orphan) bool { return o.id == id })
			if want := flags == 0; found != want {
				t.Errorf("an orphan: %t, want %t", found, want)
			}
		})
	}
}
