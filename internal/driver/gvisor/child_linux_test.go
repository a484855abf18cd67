package gvisor

import (
	"errors"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestChildren(t *testing.T) {
	start := func(script string) *child {
		t.Helper()
		cmd := exec.Command("/bin/sh", "-c", script)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		c, err := holdChild(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	isGone := func(c *child) {
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
	stopped, running := start("kill -STOP $$"), start("trap '' TERM; sleep 60 & wait")
	for range 2 {
		if err := killChildren([]*child{dead, waited, stopped, running}); err != nil {
			t.Fatal(err)
		}
		for _, c := range []*child{dead, waited, stopped, running} {
			isGone(c)
		}
	}
}
