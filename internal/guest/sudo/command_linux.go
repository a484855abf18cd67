package sudo

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Main is the command, which asks the guest at socket; args are without the
// program's name. It returns the exit status.
func Main(socket string, args []string) int {
	runtime.GOMAXPROCS(1) // its threads count for the limit on processes
	what, req, err := parse(args)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n%s", Name, err, usage)
		return 1
	}
	switch what {
	case showVersion:
		fmt.Println("sudo of Glovebox, for sandboxes; it never asks for a password")
		return 0
	case showHelp:
		fmt.Print(usage)
		return 0
	case nothing:
		return 0
	}
	status, err := ask(socket, req)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", Name, err)
		return 1
	}
	return status
}

// ask has the guest do what req says, and returns the exit status of the program.
func ask(socket string, req *request) (int, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return 0, fmt.Errorf("this sandbox has no sudo, or too many programs use it: %w", err)
	}
	defer conn.Close()
	fds := []int{0, 1, 2}
	for fd := range fds {
		if err := ensureOpen(fd); err != nil {
			return 0, err
		}
	}
	t, err := newTerminal(fds)
	if err != nil {
		return 0, err
	}
	if t != nil {
		defer t.close()
		req.Terminal = 0
	}
	dir, err := unix.Open(".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil { // it is removed, say
		if dir, err = unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
			return 0, err
		}
	}
	defer unix.Close(dir)
	req.Env = os.Environ()
	if cwd, err := os.Getwd(); err == nil {
		req.Cwd = []byte(cwd)
	}
	// From here on, a signal is the program's.
	caught := make(chan os.Signal, 16)
	signal.Notify(caught, signals...)
	if err := hand(conn, req, append(fds, dir)); err != nil {
		return 0, err
	}
	a, err := first(conn)
	if err != nil {
		return 0, err
	}
	if !a.Started {
		fmt.Print(a.Text)
		return 0, nil
	}
	pass := func(sig unix.Signal) { _, _ = conn.Write([]byte{byte(sig)}) } // the guest may have closed it
	if t != nil {
		t.begin(func() { pass(unix.SIGWINCH) })
	}
	go func() {
		for sig := range caught {
			pass(sig.(unix.Signal))
		}
	}()
	var end answer
	err = receive(conn, &end, maxAnswer)
	if t != nil {
		t.end()
		t.close() // this process may end here
	}
	if err != nil {
		return 0, fmt.Errorf("the guest ended: %w", err)
	}
	if end.Signal != 0 {
		dieBy(unix.Signal(end.Signal))
		return 128 + end.Signal, nil
	}
	return end.Status, nil
}

// ensureOpen opens a standard stream that is closed.
func ensureOpen(fd int) error {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
		return nil
	}
	got, err := unix.Open(os.DevNull, unix.O_RDWR, 0)
	if err != nil || got == fd {
		return err
	}
	defer unix.Close(got)
	return unix.Dup3(got, fd, 0)
}

// maxGreeting bounds the wait for the guest. It serves few requests at a time.
const maxGreeting = 2 * time.Minute

// hand sends a request with its descriptors.
func hand(conn *net.UnixConn, req *request, fds []int) error {
	conn.SetReadDeadline(time.Now().Add(maxGreeting))
	defer conn.SetReadDeadline(time.Time{})
	var greeting [1]byte
	if _, err := io.ReadFull(conn, greeting[:]); err != nil {
		return fmt.Errorf("the guest does not answer: %w", err)
	}
	_, _, err := conn.WriteMsgUnix([]byte{0}, unix.UnixRights(fds...), nil)
	if err == nil {
		err = send(conn, req, maxRequest)
	}
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return nil // the guest's answer says why
	}
	return err
}

// first reads the guest's first answer.
func first(conn *net.UnixConn) (*answer, error) {
	a := new(answer)
	if err := receive(conn, a, maxAnswer); err != nil {
		return nil, fmt.Errorf("the guest does not answer: %w", err)
	}
	if a.Error != "" {
		return nil, errors.New(a.Error)
	}
	return a, nil
}

// dieBy ends this process by a signal, as the program ended.
func dieBy(sig unix.Signal) {
	signal.Reset(sig)
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) // a core is the program's
	_ = unix.Kill(os.Getpid(), sig)
	time.Sleep(100 * time.Millisecond) // until it arrives, unless the signal is ignored
}
