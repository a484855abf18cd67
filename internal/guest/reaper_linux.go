package guest

import (
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A reaper starts children and waits for every child of this process, its own
// and the orphans that the kernel hands over. There is one place that waits,
// for any child, and it is also the place that starts them: a child is known
// before its death can be collected, and a pid that is known is not reused.
type reaper struct {
	mu   sync.Mutex
	live map[int]*child // guarded by mu
}

// A child is a process that was started here.
type child struct {
	pid int
	// done is closed when the child was reaped, after the fields below are set.
	done   chan struct{}
	status unix.WaitStatus
	usage  unix.Rusage
}

func newReaper() *reaper { return &reaper{live: make(map[int]*child)} }

// start starts a program. Before runs just before the fork, after just after
// it; no other child starts in between.
func (r *reaper) start(path string, argv []string, attr *syscall.ProcAttr, before, after func()) (*child, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before()
	pid, err := syscall.ForkExec(path, argv, attr)
	after()
	if err != nil {
		return nil, err
	}
	c := &child{pid: pid, done: make(chan struct{})}
	r.live[pid] = c
	return c, nil
}

// signal signals c, or its process group if group is set. It returns ESRCH if
// c was reaped.
func (r *reaper) signal(c *child, sig unix.Signal, group bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.live[c.pid] != c {
		return unix.ESRCH
	}
	if group {
		return unix.Kill(-c.pid, sig)
	}
	return unix.Kill(c.pid, sig)
}

// pids returns the children that live (or are not reaped yet).
func (r *reaper) pids() map[int]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := make(map[int]bool, len(r.live))
	for pid := range r.live {
		m[pid] = true
	}
	return m
}

// run reaps at every SIGCHLD that arrives on sigs until it is closed.
func (r *reaper) run(sigs <-chan os.Signal) {
	for range sigs {
		for r.reap() {
		}
	}
}

// reap collects one dead child, and reports whether there was one.
func (r *reaper) reap() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	var status unix.WaitStatus
	var usage unix.Rusage
	for {
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG|unix.WALL, &usage)
		if err == unix.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return false
		}
		if c := r.live[pid]; c != nil {
			delete(r.live, pid)
			c.status, c.usage = status, usage
			close(c.done)
		}
		return true
	}
}
