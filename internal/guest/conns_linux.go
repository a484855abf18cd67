package guest

import (
	"bufio"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Serve accepts connections from a Unix socket until it is closed, and then
// returns nil. A connection that begins with a passed file descriptor stands
// for that stream socket; any other speaks HTTP itself. Connections of other
// users than the guest's own are refused, whatever the socket's mode is.
func (g *Guest) Serve(l *net.UnixListener) error {
	for {
		conn, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) ||
			errors.Is(err, unix.ECONNABORTED) {
			time.Sleep(10 * time.Millisecond) // until something is freed
			continue
		}
		if err != nil {
			return err
		}
		go g.admit(conn)
	}
}

// maxSilence bounds how long a new connection may say nothing: what it says
// first decides what it is.
const maxSilence = 30 * time.Second

func (g *Guest) admit(conn *net.UnixConn) {
	if !g.trusts(conn) {
		conn.Close()
		return
	}
	first := make([]byte, 1)
	oob := make([]byte, unix.CmsgSpace(4*4))
	conn.SetReadDeadline(time.Now().Add(maxSilence))
	n, oobn, _, _, err := conn.ReadMsgUnix(first, oob)
	if err != nil || n == 0 {
		conn.Close()
		return
	}
	conn.SetReadDeadline(time.Time{})
	fds := passedFDs(oob[:oobn])
	if len(fds) == 0 {
		g.ServeConn(&prefixedConn{Conn: conn, prefix: first})
		return
	}
	conn.Close()
	for _, fd := range fds[1:] {
		unix.Close(fd)
	}
	// A descriptor that is no stream socket is dropped: its other end sees it
	// closed.
	_ = g.ServeFD(fds[0])
}

// trusts reports whether the other end of conn is root or the guest's user.
func (g *Guest) trusts(conn *net.UnixConn) bool {
	rc, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	var cred *unix.Ucred
	var credErr error
	err = rc.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err != nil || credErr != nil {
		return false
	}
	return cred.Uid == 0 || int(cred.Uid) == os.Geteuid()
}

// passedFDs returns the descriptors that came with a message. They are closed
// on exec.
func passedFDs(oob []byte) []int {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	var all []int
	for i := range msgs {
		fds, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			all = append(all, fd)
		}
	}
	return all
}

// ServeFD serves HTTP on an open stream socket, which it takes over.
func (g *Guest) ServeFD(fd int) error {
	unix.CloseOnExec(fd)
	f := os.NewFile(uintptr(fd), "connection")
	defer f.Close()
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return os.NewSyscallError("getsockopt", err)
	}
	if kind != unix.SOCK_STREAM {
		return errors.New("connection is not a stream socket")
	}
	conn, err := net.FileConn(f) // has its own descriptor
	if err != nil {
		return err
	}
	g.ServeConn(conn)
	return nil
}

// ServeConn serves HTTP on conn, which it closes in the end.
func (g *Guest) ServeConn(conn net.Conn) {
	g.conns.push(&bufferedConn{Conn: conn, r: bufio.NewReaderSize(conn, readAhead)})
}

// readAhead is how much is read of a connection at once, if less is asked for:
// the head of each frame of HTTP/2 is read apart.
const readAhead = 4 << 10

// bufferedConn is a connection that is read in large pieces.
type bufferedConn struct {
	net.Conn
	r *bufio.Reader
}

func (c *bufferedConn) Read(p []byte) (int, error) { return c.r.Read(p) }

// prefixedConn is a connection of which something was read already.
type prefixedConn struct {
	net.Conn
	prefix []byte
}

func (c *prefixedConn) Read(p []byte) (int, error) {
	if len(c.prefix) > 0 {
		n := copy(p, c.prefix)
		c.prefix = c.prefix[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// connQueue is a listener whose connections are pushed.
type connQueue struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newConnQueue() *connQueue {
	return &connQueue{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (q *connQueue) push(c net.Conn) {
	select {
	case q.conns <- c:
	case <-q.closed:
		c.Close()
	}
}

func (q *connQueue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.closed:
		return nil, net.ErrClosed
	}
}

func (q *connQueue) Close() error {
	q.once.Do(func() { close(q.closed) })
	return nil
}

func (q *connQueue) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }
