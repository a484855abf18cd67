package guest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// serveStream serves a connection within a connection: the request's body is what
// comes in, the response's what goes out.
func (g *Guest) serveStream(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || r.ProtoMajor < 2 {
		w.WriteHeader(http.StatusMethodNotAllowed) // HTTP/1 cannot do both at once
		return
	}
	rc := http.NewResponseController(w)
	w.WriteHeader(http.StatusOK)
	if rc.Flush() != nil {
		return
	}
	near, far := net.Pipe()
	defer far.Close()
	g.ServeConn(near)
	go func() {
		_, _ = io.Copy(far, r.Body) // an end is an end
		far.Close()
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := far.Read(buf)
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil || rc.Flush() != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// stdioConn is the connection that the guest's standard input and output are.
type stdioConn struct {
	in, out *os.File
	first   []byte        // what was heard and not read yet
	ended   chan struct{} // closed when there is no more input
	once    sync.Once
}

// unspokenTime is how long it may take until the guest is first spoken to. Who
// has it started does that at once, unless they ended in between.
const unspokenTime = 30 * time.Second

// spokenTo waits for the first input, before which nothing may be said: an
// engine may attach the other end only after the start, and what is said to
// nobody is lost. It comes before the first Read, and closes the connection if it
// fails.
func (c *stdioConn) spokenTo(patience time.Duration) error {
	// What cannot be waited for is there.
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

// takeStdio makes a connection of the standard input and output, and puts
// /dev/null in their place.
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
		// So that a read can be waited for without a thread, and be broken off.
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
