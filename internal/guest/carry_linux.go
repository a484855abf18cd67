package guest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The guest of a Pod with a network has a carrier: the process above it. The carrier
// is root of the user namespace that owns the guest's network namespace. It makes the
// interface there, and starts the guest in a user namespace below, where nothing has
// rights over the network. Then it gives its own rights up, and copies packets
// between the interface and a Unix socket. The driver executes "relay --tunnel" in
// the Pod, which connects that socket to its standard streams.
//
// The programs of the box are the carrier's user, and can connect to the socket, too.
// They get packets of their own box so, and can send it some. The gateway trusts no
// packet, wherever it comes from.

const (
	carryFlag   = "--carry"
	carriedFlag = "--carried"
)

// tunnelSocket returns the path of the carrier's socket, next to the guest's.
func tunnelSocket(guest string) string { return filepath.Join(filepath.Dir(guest), "tunnel.sock") }

// carry makes the interface, starts the guest with args, and carries packets until
// the guest ends. It returns the guest's exit status, or why it cannot be started.
func (o *order) carry(args []string) (int, error) {
	var own [2]int
	if _, err := fmt.Sscanf(o.carriedUser, "%d:%d", &own[0], &own[1]); err != nil {
		return 0, fmt.Errorf("%s %s: %w", carryFlag, o.carriedUser, err)
	}
	signals, stop := forwarded()
	defer stop()
	if err := loopbackUp(); err != nil {
		return 0, err
	}
	tun, err := o.link.open()
	if err != nil {
		return 0, err
	}
	if tun, err = polled(tun); err != nil {
		return 0, err
	}
	defer tun.Close()
	l, err := listen(tunnelSocket(o.socket))
	if err != nil {
		return 0, err
	}
	defer l.Close()
	cmd, err := startIn(unix.CLONE_NEWUSER, own, nil, append([]string{carriedFlag}, args...))
	if err != nil {
		return 0, err
	}
	hide() // after the start, which opens files of the child that would be root's
	if err := dropCapabilities(); err != nil {
		return 0, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	unix.Close(refusalFD)
	c := &carrier{tun: tun}
	go c.carryOut()
	go c.serve(l)
	return follow(cmd, signals), nil
}

// polled returns a file in non-blocking mode, so that a read holds no thread.
func polled(f *os.File) (*os.File, error) {
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// dropCapabilities takes the capabilities from all threads.
func dropCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none[0])), 0)
	if errno == unix.ENOTSUP {
		return nil // a test with cgo: the guest's program has none
	}
	if errno != 0 {
		return os.NewSyscallError("capset", errno)
	}
	return nil
}

// A carrier copies packets between the interface and the newest connection.
type carrier struct {
	tun io.ReadWriter

	mu    sync.Mutex
	conn  net.Conn // the newest; nil if there was none; guarded by mu
	ready bool     // conn may be written to; guarded by mu
}

// serve accepts connections. The newest replaces the one before, whose other end may
// be a server that is lost.
func (c *carrier) serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // until a resource is freed
			continue
		}
		c.mu.Lock()
		before := c.conn
		c.conn, c.ready = conn, false
		c.mu.Unlock()
		if before != nil {
			before.Close()
		}
		go c.carryIn(conn)
	}
}

// carryIn copies packets from a connection, once its other end has spoken. Like
// those of [tunnelMain], the first packet and its answer are empty.
func (c *carrier) carryIn(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(unspokenTime))
	var first [2]byte
	if _, err := io.ReadFull(conn, first[:]); err != nil || binary.BigEndian.Uint16(first[:]) != 0 {
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	if err := c.begin(conn, first[:]); err != nil {
		return
	}
	_ = carryIn(c.tun, conn) // its end is the connection's
}

// begin answers a connection, and sends it packets from then on. It holds the lock, so
// that no packet is before the answer, and none after it is lost. The answer fits into the
// buffer of a new socket.
func (c *carrier) begin(conn net.Conn, answer []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := conn.Write(answer); err != nil {
		return err
	}
	c.ready = c.ready || c.conn == conn
	return nil
}

// carryOut copies packets from the interface. Without a connection they are lost.
func (c *carrier) carryOut() {
	_ = carryOut(c, c.tun) // the interface has ended, and the guest with it
}

// Write sends a packet with its length. It never fails: the interface must be read
// on, for the next connection.
func (c *carrier) Write(frame []byte) (int, error) {
	c.mu.Lock()
	conn, ready := c.conn, c.ready
	c.mu.Unlock()
	if ready {
		if _, err := conn.Write(frame); err != nil {
			conn.Close() // a packet in part is of no use to the other end
		}
	}
	return len(frame), nil
}
