package process

import (
	"os/exec"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/guest/procfs"
)

// TestKillAfterMissedScan has a scan miss a process, as a scan does when the pid of a
// child is low and its parent ends meanwhile. The process is killed all the same.
func TestKillAfterMissedScan(t *testing.T) {
	start := func() (*exec.Cmd, <-chan error) {
		cmd := exec.Command("sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill() })
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		return cmd, ended
	}
	parent, parentEnded := start()
	child, childEnded := start()
	scans := 0
	err := killSet(func(all map[int]procfs.Process) (set []procfs.Process) {
		if p, ok := all[parent.Process.Pid]; ok && !p.Dead() {
			return []procfs.Process{p}
		}
		if scans++; scans == 1 {
			return nil
		}
		if p, ok := all[child.Process.Pid]; ok {
			set = append(set, p)
		}
		return set
	})
	if err != nil {
		t.Fatal(err)
	}
	<-parentEnded
	<-childEnded
}
