package gvisor

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A child is a process of a box that this maker started: its kernel or its
// network. It is held by a descriptor, which unlike its number is never another's,
// and which tells of its end without a look into /proc: each file that is opened
// there makes entries that the kernel must find and throw away when the process
// ends.
type child struct {
	pid   int
	fd    *os.File
	ended chan struct{} // closed when the process is gone, and no zombie
}

// holdChild begins to wait for the end of a child. One that cannot be held is
// killed.
func holdChild(pid int) (*child, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		if pid > 1 { // nobody else waits for it, so the number is still its own
			_ = unix.Kill(pid, unix.SIGKILL)
			go wait(pid)
		}
		return nil, fmt.Errorf("hold process %d: %w", pid, err)
	}
	c := &child{pid: pid, fd: os.NewFile(uintptr(fd), "process"), ended: make(chan struct{})}
	go c.reap()
	return c, nil
}

// reapAfter is how long a child stays a zombie. The kernel reports a process's
// end while the last of its threads still throws away that thread's entries in
// /proc, and to be waited for is to throw away those of the whole process: done
// at once it spins, for milliseconds where processors are short, until the thread
// gets on.
const reapAfter = 2 * time.Millisecond

// reap collects the child's end soon after it dies: whoever waits for it to be
// gone, from here or from another maker, must not wait for its zombie.
func (c *child) reap() {
	defer close(c.ended)
	defer c.fd.Close()
	conn, err := c.fd.SyscallConn()
	if err == nil {
		err = conn.Read(func(fd uintptr) bool {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			return n > 0 && err == nil
		})
	}
	if err != nil { // Go's poller has no room for it
		wait(c.pid)
		return
	}
	time.Sleep(reapAfter)
	// gVisor waits itself for one that it fails to start, so this may fail.
	_ = conn.Control(func(fd uintptr) { _ = unix.Waitid(unix.P_PIDFD, int(fd), nil, unix.WEXITED, nil) })
}

// wait waits for a child's end by its number.
func wait(pid int) {
	for {
		if _, err := unix.Wait4(pid, nil, 0, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// kill kills the child, if it lives.
func (c *child) kill() error {
	conn, err := c.fd.SyscallConn()
	if err != nil {
		return nil // closed by reap
	}
	var kerr error
	err = conn.Control(func(fd uintptr) { kerr = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
	if err != nil || kerr == nil || errors.Is(kerr, unix.ESRCH) {
		return nil
	}
	return fmt.Errorf("kill process %d: %w", c.pid, kerr)
}

// killTime is how long a process may take to end that was killed.
const killTime = 10 * time.Second

// killChildren kills children and returns when they have ended: then it is no
// error that one could not be killed.
func killChildren(children []*child) error {
	var errs []error
	for _, c := range children {
		errs = append(errs, c.kill())
	}
	late := time.NewTimer(killTime)
	defer late.Stop()
	for _, c := range children {
		select {
		case <-c.ended:
		case <-late.C:
			return errors.Join(fmt.Errorf("process %d does not end", c.pid), errors.Join(errs...))
		}
	}
	return nil
}
