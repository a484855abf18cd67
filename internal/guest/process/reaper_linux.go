package process

import (
	"errors"
	"maps"
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
	// A delegate counts as a part of the process with the number owner, which is
	// 0 if the guest does not know it. credit is that process while it is known.
	delegate bool
	owner    uint64
	credit   *Process
	// done is closed after the child was reaped and the fields below are set.
	done   chan struct{}
	status unix.WaitStatus
	usage  unix.Rusage
}

func newReaper() *reaper { return &reaper{live: make(map[int]*Child)} }

// start starts a program as c, whose owner is set. It calls before just before the
// fork and after just after it, and starts no other child in between. If before
// fails, there is no fork.
//
// A dead child counts for the limit on processes until it is reaped. At the limit,
// start therefore reaps the dead and forks once more: after the end of a fork bomb,
// there can be many.
func (r *reaper) start(c *Child, path string, argv []string, attr *syscall.ProcAttr, before func() error, after func()) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := before()
	pid := 0
	if err == nil {
		pid, err = syscall.ForkExec(path, argv, attr)
		if errors.Is(err, unix.EAGAIN) {
			for r.reapLocked() {
			}
			pid, err = syscall.ForkExec(path, argv, attr)
		}
	}
	after()
	if err != nil {
		return err
	}
	c.reaper, c.pid, c.done = r, pid, make(chan struct{})
	r.live[pid] = c
	return nil
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

// children returns the children that are not reaped yet, by pid.
func (r *reaper) children() map[int]*Child {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.live)
}

// child returns the child with that pid, or nil.
func (r *reaper) child(pid int) *Child {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.live[pid]
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
	return r.reapLocked()
}

func (r *reaper) reapLocked() bool {
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
			if c.credit != nil {
				c.credit.addUsage(&usage)
			}
			close(c.done)
		}
		return true
	}
}
