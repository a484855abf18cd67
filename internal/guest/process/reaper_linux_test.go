package process

import (
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/procfs"
)

// TestStartReapsTheDeadAtTheLimit: children that are dead and not reaped count for the
// limit on processes of their user, but keep no program from starting.
func TestStartReapsTheDeadAtTheLimit(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root starts programs as another user")
	}
	const user, limit = 60_123, 3 // nothing else runs as this user
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &was); err != nil {
		t.Fatal(err)
	}
	r := newReaper() // reap is not called by itself
	start := func() *Child {
		t.Helper()
		c := new(Child)
		attr := &syscall.ProcAttr{Dir: "/", Sys: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}}
		err := r.start(c, "/bin/sh", []string{"sh", "-c", "exit 0"}, attr,
			func() error { return unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: limit, Max: was.Max}) },
			func() {
				if err := unix.Setrlimit(unix.RLIMIT_NPROC, &was); err != nil {
					t.Error(err)
				}
			})
		if err != nil {
			t.Fatal(err)
		}
		for p, ok := procfs.Read(c.pid); !ok || !p.Dead(); p, ok = procfs.Read(c.pid) {
			if !ok || t.Context().Err() != nil {
				t.Fatal("the child was reaped")
			}
			time.Sleep(time.Millisecond)
		}
		return c
	}
	var dead []*Child
	for range limit + 1 { // the kernel compares before it counts the new process
		dead = append(dead, start())
	}
	last := start()
	for i, c := range dead {
		select {
		case <-c.Done():
		default:
			t.Errorf("child %d was not reaped", i)
		}
	}
	for r.reap() {
	}
	if status := last.Status(); !status.Exited() || status.ExitStatus() != 0 {
		t.Errorf("the last child: %v", status)
	}
}
