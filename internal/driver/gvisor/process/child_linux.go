package process

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A Child is a process of a box that this process started: the sentry or the network.
// It is held by a pidfd, which unlike a process ID is never reused. A pidfd also
// reports the end of the process without a read of /proc. Each file opened there
// makes the host kernel cache entries that it must discard when the process ends.
type Child struct {
	pid   int
	fd    *os.File
	ended chan struct{} // closed when the process is gone and has been waited for
}

// Hold begins to wait for the end of a child. If it cannot hold the child, it
// kills it.
func Hold(pid int) (*Child, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		if pid > 1 { // no other code waits for it, so the ID is not reused yet
			_ = unix.Kill(pid, unix.SIGKILL)
			go wait(pid)
		}
		return nil, fmt.Errorf("hold process %d: %w", pid, err)
	}
	c := &Child{pid: pid, fd: os.NewFile(uintptr(fd), "process"), ended: make(chan struct{})}
	go c.reap()
	return c, nil
}

// reapAfter is how long a child stays a zombie. The host kernel reports the end of
// a process while its last thread still discards its entries in /proc. Waiting for
// the process discards the entries of the whole process. If this is done at once,
// it spins until that thread proceeds, for milliseconds on a busy machine.
const reapAfter = 2 * time.Millisecond

// reap collects the child's exit status soon after its death. Callers here and in
// other supervisors that wait for the process to be gone must not wait for a zombie.
func (c *Child) reap() {
	defer close(c.ended)
	defer c.fd.Close()
	conn, err := c.fd.SyscallConn()
	if err == nil {
		err = conn.Read(func(fd uintptr) bool {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			return n > 0 && err == nil
		})
	}
	if err != nil { // Go's poller has no room for the pidfd
		wait(c.pid)
		return
	}
	time.Sleep(reapAfter)
	// gVisor itself waits for a sentry that it fails to start, so this may fail.
	_ = conn.Control(func(fd uintptr) { _ = unix.Waitid(unix.P_PIDFD, int(fd), nil, unix.WEXITED, nil) })
}

// wait waits for a child by its process ID.
func wait(pid int) {
	for {
		if _, err := unix.Wait4(pid, nil, 0, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// kill kills the child, if it is alive.
func (c *Child) kill() error {
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

// killTime bounds how long a killed process may take to end.
const killTime = 10 * time.Second

// KillChildren kills children and returns when they have ended. If all have ended,
// a failed kill is not an error.
func KillChildren(children []*Child) error {
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
