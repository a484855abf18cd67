//go:build unix

package app

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestInherited(t *testing.T) {
	// passed returns a descriptor of a listener, as a service manager leaves it.
	passed := func(network, addr string) int {
		t.Helper()
		ln, err := net.Listen(network, addr)
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		f, err := ln.(interface{ File() (*os.File, error) }).File()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		fd, err := syscall.Dup(int(f.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	env := func(pid, fds string) func(string) string {
		return func(name string) string { return map[string]string{"LISTEN_PID": pid, "LISTEN_FDS": fds}[name] }
	}
	self := strconv.Itoa(os.Getpid())

	ln, err := inherited(env(self, "1"), passed("tcp", "127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Errorf("the socket does not listen: %v", err)
	} else if err := conn.Close(); err != nil {
		t.Error(err)
	}

	for name, pid := range map[string]string{"nothing": "", "another process": "1"} {
		if ln, err := inherited(env(pid, "1"), -1); ln != nil || err != nil {
			t.Errorf("%s: %v, %v", name, ln, err)
		}
	}
	for name, got := range map[string]struct {
		fds string
		fd  int
	}{
		"two":         {"2", -1},
		"no number":   {"", -1},
		"not open":    {"1", 1 << 20},
		"not TCP":     {"1", passed("unix", filepath.Join(t.TempDir(), "s"))},
		"not counted": {"-1", -1},
	} {
		if _, err := inherited(env(self, got.fds), got.fd); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
