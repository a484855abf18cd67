package guest

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// connectMain hands descriptor 0 to the guest. It makes the system calls itself,
// for speed: it runs for every connection, and the caller waits for it.
func connectMain(args []string) error {
	fs := flag.NewFlagSet("connect", flag.ContinueOnError)
	socket := socketFlag(fs)
	if err := fs.Parse(args); err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	// The guest may have just been started, and may not listen yet.
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: *socket})
	for deadline := time.Now().Add(connectWait); notThere(err) && time.Now().Before(deadline); {
		time.Sleep(connectPause)
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: *socket})
	}
	if err != nil {
		return fmt.Errorf("connect to the guest: %w", err)
	}
	if err := unix.Sendmsg(fd, []byte{0}, unix.UnixRights(0), nil, 0); err != nil {
		return fmt.Errorf("pass the connection: %w", err)
	}
	return nil
}

// How long connectMain waits until the guest listens, and how often it tries.
const (
	connectWait  = 5 * time.Second
	connectPause = 2 * time.Millisecond
)

// notThere reports whether err means that no process listens at a socket.
func notThere(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED)
}

// dialGuest connects to a socket of the guest, or of a process above it. The guest may
// have just been started, and may not listen yet.
func dialGuest(socket string) (*net.UnixConn, error) {
	dial := func() (*net.UnixConn, error) {
		return net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	}
	conn, err := dial()
	for deadline := time.Now().Add(connectWait); notThere(err) && time.Now().Before(deadline); {
		time.Sleep(connectPause)
		conn, err = dial()
	}
	if err != nil {
		return nil, fmt.Errorf("connect to the guest: %w", err)
	}
	return conn, nil
}

// relayMain copies between the guest, or the carrier of its packets, and descriptors
// 0 and 1. It ends when the guest closes the connection.
func relayMain(args []string) error {
	hide() // from programs, where they have the same user
	fs := flag.NewFlagSet("relay", flag.ContinueOnError)
	socket := socketFlag(fs)
	tunnel := fs.Bool("tunnel", false, "relay packets to the process that carries them")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *tunnel {
		*socket = tunnelSocket(*socket)
	}
	conn, err := dialGuest(*socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	in, out := os.NewFile(0, "input"), os.NewFile(1, "output")
	toGuest := make(chan error, 1)
	go func() {
		_, err := io.Copy(conn, in)
		toGuest <- errors.Join(err, conn.CloseWrite())
	}()
	if _, err := io.Copy(out, conn); err != nil {
		return fmt.Errorf("copy from the guest: %w", err)
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("end the output: %w", err)
	}
	select {
	case err := <-toGuest:
		if err != nil && !errors.Is(err, unix.EPIPE) {
			return fmt.Errorf("copy to the guest: %w", err)
		}
	default: // the guest has closed the connection
	}
	return nil
}
