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

// connections serves HTTP on connections, however they arrive.
type connections struct{ queue *connQueue }

// Serve accepts connections from a Unix socket until it is closed, and then
// returns nil. If a connection begins with a passed file descriptor, Serve
// serves that stream socket instead. It refuses clients that are neither root
// nor the guest's own user, whatever the socket's mode is.
func (c *connections) Serve(l *net.UnixListener) error {
	for {
		conn, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) ||
			errors.Is(err, unix.ECONNABORTED) {
			time.Sleep(10 * time.Millisecond) // until a resource is freed
			continue
		}
		if err != nil {
			return err
		}
		go c.admit(conn)
	}
}

// maxSilence bounds the wait for the first message of a connection, which
// decides its kind.
const maxSilence = 30 * time.Second

// admit serves an accepted connection.
func (c *connections) admit(conn *net.UnixConn) {
	if !trusts(conn) {
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
		c.ServeConn(&prefixedConn{Conn: conn, prefix: first})
		return
	}
	conn.Close()
	for _, fd := range fds[1:] {
		unix.Close(fd)
	}
	// A descriptor that is not a stream socket is closed, and its other end sees
	// that.
	_ = c.ServeFD(fds[0])
}

// trusts reports whether the peer of conn is root or the guest's user.
func trusts(conn *net.UnixConn) bool {
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

// passedFDs returns the descriptors passed with a message, with close-on-exec
// set.
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

// ServeFD serves HTTP on an open stream socket. It takes fd over, also on an
// error.
func (c *connections) ServeFD(fd int) error {
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
	c.ServeConn(conn)
	return nil
}

// ServeConn serves HTTP on conn and closes it at its end.
func (c *connections) ServeConn(conn net.Conn) {
	c.queue.push(&bufferedConn{Conn: conn, r: bufio.NewReaderSize(conn, readAhead)})
}

// readAhead is the size of a connection's read buffer. HTTP/2 reads the header
// of each frame separately, which would be one system call each.
const readAhead = 4 << 10

// bufferedConn is a connection with a read buffer.
type bufferedConn struct {
	net.Conn
	r *bufio.Reader
}

func (c *bufferedConn) Read(p []byte) (int, error) { return c.r.Read(p) }

// prefixedConn is a connection whose first bytes were already read.
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

// connQueue is a listener to which connections are pushed.
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
