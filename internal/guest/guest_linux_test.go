package guest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/guesttest"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

func TestMain(m *testing.M) { guesttest.Main(m) }

func TestConnectorPassesSocket(t *testing.T) {
	h := guesttest.New(t)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "theirs")
	cmd := exec.Command("/proc/self/exe", guesttest.GuestArg, "connect", "--socket", h.Socket)
	cmd.Stdin = theirs
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("connector: %v: %s", err, out)
	}
	theirs.Close()
	checkConn(t, fds[0])
}

func TestInheritedConnection(t *testing.T) {
	dir := t.TempDir()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "theirs")
	args := []string{guesttest.GuestArg, "--socket", filepath.Join(dir, "r", "s"), "--conn-fd", "3"}
	if os.Geteuid() != 0 {
		args = append(args, "--self")
	}
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.ExtraFiles = []*os.File{theirs}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	checkConn(t, fds[0])
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}

func TestRelay(t *testing.T) {
	h := guesttest.New(t)
	cmd := exec.Command("/proc/self/exe", guesttest.GuestArg, "relay", "--socket", h.Socket)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	io.WriteString(in, "GET /health HTTP/1.1\r\nHost: guest\r\nConnection: close\r\n\r\n")
	reply, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(reply), "HTTP/1.1 204 ") {
		t.Fatalf("reply is %q", reply)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}

// checkConn speaks to a guest on one open socket.
func checkConn(t *testing.T, fd int) {
	t.Helper()
	f := os.NewFile(uintptr(fd), "ours")
	conn, err := net.FileConn(f)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	c := guestapi.NewClient(func(context.Context) (net.Conn, error) {
		if conn == nil {
			return nil, errors.New("one connection only")
		}
		one := conn
		conn = nil
		return one, nil
	})
	defer c.Close()
	if err := c.Health(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, err := c.Start(t.Context(), guesttest.Sh("echo hello"), guestapi.StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if r := guesttest.Collect(t, p); r.Stdout != "hello\n" {
		t.Fatalf("stdout is %q", r.Stdout)
	}
}

func TestSocketIsForTheGuestsUserOnly(t *testing.T) {
	h := guesttest.New(t)
	for path, want := range map[string]os.FileMode{h.Socket: 0o600, filepath.Dir(h.Socket): 0o700} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("mode of %s is %o, want %o", path, got, want)
		}
	}
}

// Another user who gets at the socket all the same is not served.
func TestPeerIsChecked(t *testing.T) {
	guesttest.NeedRoot(t)
	h := guesttest.New(t)
	for _, path := range []string{filepath.Dir(filepath.Dir(h.Socket)), filepath.Dir(h.Socket)} {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(h.Socket, 0o666); err != nil {
		t.Fatal(err)
	}
	for uid, want := range map[uint32]bool{0: true, account.UserID: false} {
		cmd := exec.Command("/proc/self/exe", guesttest.ClientArg, h.Socket)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		if out, err := cmd.CombinedOutput(); (err == nil) != want {
			t.Errorf("uid %d was served: %v, want %v: %s", uid, err == nil, want, out)
		}
	}
}

// BenchmarkHealth is the least call.
func BenchmarkHealth(b *testing.B) {
	h := guesttest.New(b)
	for b.Loop() {
		if err := h.Health(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
