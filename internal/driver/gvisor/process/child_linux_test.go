package process

import (
	"errors"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestChildren(t *testing.T) {
	start := func(script string) *Child {
		t.Helper()
		cmd := exec.Command("/bin/sh", "-c", script)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		c, err := Hold(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	isGone := func(c *Child) {
		t.Helper()
		if err := unix.Kill(c.pid, 0); !errors.Is(err, unix.ESRCH) {
			t.Errorf("the child has ended, but signal 0 to it gives %v", err)
		}
	}
	dead := start("exit 3")
	select {
	case <-dead.ended:
		isGone(dead)
	case <-time.After(10 * time.Second):
		t.Fatal("a child that ended by itself is not waited for")
	}
	waited := start("read x < /dev/null; exit 4")
	_, _ = unix.Wait4(waited.pid, nil, 0, nil) // as gVisor may, before reap or after
	stopped, running := start("kill -STOP $$"), start("trap '' TERM; exec sleep 60")
	for range 2 {
		if err := KillChildren([]*Child{dead, waited, stopped, running}); err != nil {
			t.Fatal(err)
		}
		for _, c := range []*Child{dead, waited, stopped, running} {
			isGone(c)
		}
	}
}
