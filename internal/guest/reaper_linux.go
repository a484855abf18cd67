package guest

import (
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A reaper starts children, and reaps every child of this process: its own and
// the orphans that the OS kernel hands over. Starting and reaping share one
// lock. So a child is known before it can be reaped, and a known pid is not
// reused.
type reaper struct {
	mu   sync.Mutex
	live map[int]*child // guarded by mu
}

// A child is a process that the reaper started.
type child struct {
	pid int
	// done is closed after the child was reaped and the fields below are set.
	done   chan struct{}
	status unix.WaitStatus
	usage  unix.Rusage
}

func newReaper() *reaper { return &reaper{live: make(map[int]*child)} }

// start starts a program. It calls before just before the fork and after just
// after it, and starts no other child in between.
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

// signal signals c, or its process group if group is set. It returns ESRCH if c
// was reaped.
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

// pids returns the children that are not reaped yet.
func (r *reaper) pids() map[int]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := make(map[int]bool, len(r.live))
	for pid := range r.live {
		m[pid] = true
	}
	return m
}

// run reaps at every SIGCHLD on sigs until sigs is closed.
func (r *reaper) run(sigs <-chan os.Signal) {
	for range sigs {
		for r.reap() {
		}
	}
}

// reap reaps one dead child, and reports whether there was one.
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
