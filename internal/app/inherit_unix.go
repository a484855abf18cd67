//go:build unix

package app

import (
	"errors"
	"net"
	"os"
	"strconv"
	"syscall"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// firstInherited is the first file descriptor of sockets that a service manager
// passes.
const firstInherited = 3

// inherited returns the socket that systemd opened for this process, or nil if
// there is none. Child processes inherit the environment variables too, so
// LISTEN_PID names the intended process.
func inherited(getenv func(string) string, fd int) (net.Listener, error) {
	if getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	if n := getenv("LISTEN_FDS"); n != "1" {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "the service manager passes %q sockets", n),
			"glovebox.socket has one line that begins with Listen")
	}
	syscall.CloseOnExec(fd)
	f := os.NewFile(uintptr(fd), "socket of the service manager")
	defer f.Close() // the listener has a file descriptor of its own
	ln, err := net.FileListener(f)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "the service manager's socket: %w", err)
	}
	if _, ok := ln.Addr().(*net.TCPAddr); !ok {
		err := sandbox.Errorf(sandbox.Invalid, "the service manager's socket is %s, not TCP", ln.Addr().Network())
		return nil, sandbox.WithHint(errors.Join(err, ln.Close()), "write it like ListenStream=127.0.0.1:8080")
	}
	return ln, nil
}
