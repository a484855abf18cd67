package process

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
	live map[int]*Child // guarded by mu
}

// A Child is a process that the reaper started.
type Child struct {
	reaper *reaper
	pid    int
	// done is closed after the child was reaped and the fields below are set.
	done   chan struct{}
	status unix.WaitStatus
	usage  unix.Rusage
}

func newReaper() *reaper { return &reaper{live: make(map[int]*Child)} }

// start starts a program. It calls before just before the fork and after just
// after it, and starts no other child in between.
func (r *reaper) start(path string, argv []string, attr *syscall.ProcAttr, before, after func()) (*Child, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before()
	pid, err := syscall.ForkExec(path, argv, attr)
	after()
	if err != nil {
		return nil, err
	}
	c := &Child{reaper: r, pid: pid, done: make(chan struct{})}
	r.live[pid] = c
	return c, nil
}

// Done returns a channel that is closed when c has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// Status returns how c ended. The caller has seen the close of Done.
func (c *Child) Status() unix.WaitStatus { return c.status }

// Kill kills c without its descendants. It does nothing if c has ended.
func (c *Child) Kill() { _ = c.signal(unix.SIGKILL, false) }

// signal signals c, or its process group if group is set. It returns ESRCH if c
// was reaped.
func (c *Child) signal(sig unix.Signal, group bool) error {
	r := c.reaper
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
