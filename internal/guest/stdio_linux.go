package guest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// stdioConn is the standard input and output as a connection.
type stdioConn struct {
	in, out *os.File
	first   []byte        // the byte that spokenTo read, until Read returns it
	ended   chan struct{} // closed at the end of the input
	once    sync.Once
}

// unspokenTime bounds the wait for the first input. The host sends it right
// after the start of the guest, unless the host ended in between.
const unspokenTime = 30 * time.Second

// spokenTo waits for the first input. The guest must not write before: the
// container engine may attach the other end after the start, and would lose the
// output. Call spokenTo before the first Read. It closes the connection on an
// error.
func (c *stdioConn) spokenTo(patience time.Duration) error {
	// ErrNoDeadline means a file that is always ready to be read.
	if err := c.in.SetReadDeadline(time.Now().Add(patience)); err != nil && !errors.Is(err, os.ErrNoDeadline) {
		return errors.Join(err, c.Close())
	}
	first := make([]byte, 1)
	if _, err := io.ReadFull(c.in, first); err != nil {
		c.Close()
		return fmt.Errorf("wait for the first input: %w", err)
	}
	c.first = first
	if err := c.in.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, os.ErrNoDeadline) {
		return errors.Join(err, c.Close())
	}
	return nil
}

// takeStdio makes a connection of the standard input and output, and replaces
// both with /dev/null.
func takeStdio() (*stdioConn, error) {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("open", err)
	}
	defer unix.Close(null)
	var taken [2]*os.File
	for fd, name := range []string{"input", "output"} {
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return nil, os.NewSyscallError("fcntl", err)
		}
		if err := unix.Dup3(null, fd, 0); err != nil {
			return nil, os.NewSyscallError("dup3", err)
		}
		// Nonblocking, so that a read holds no thread and can be interrupted.
		if err := unix.SetNonblock(dup, true); err != nil {
			return nil, os.NewSyscallError("fcntl", err)
		}
		taken[fd] = os.NewFile(uintptr(dup), name)
	}
	return &stdioConn{in: taken[0], out: taken[1], ended: make(chan struct{})}, nil
}

func (c *stdioConn) Read(p []byte) (int, error) {
	if len(c.first) > 0 {
		n := copy(p, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	n, err := c.in.Read(p)
	if err != nil {
		c.once.Do(func() { close(c.ended) })
	}
	return n, err
}

func (c *stdioConn) Write(p []byte) (int, error) { return c.out.Write(p) }

func (c *stdioConn) Close() error {
	c.once.Do(func() { close(c.ended) })
	err := c.out.Close()
	if inErr := c.in.Close(); err == nil {
		err = inErr
	}
	return err
}

func (c *stdioConn) LocalAddr() net.Addr  { return &net.UnixAddr{Net: "unix"} }
func (c *stdioConn) RemoteAddr() net.Addr { return &net.UnixAddr{Net: "unix"} }

func (c *stdioConn) SetDeadline(t time.Time) error {
	if err := c.in.SetReadDeadline(t); err != nil {
		return err
	}
	return c.out.SetWriteDeadline(t)
}
func (c *stdioConn) SetReadDeadline(t time.Time) error  { return c.in.SetReadDeadline(t) }
func (c *stdioConn) SetWriteDeadline(t time.Time) error { return c.out.SetWriteDeadline(t) }
