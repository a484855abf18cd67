package guest_test

import (
	"bytes"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guest/guesttest"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// newStdioGuest starts a guest whose connection is its standard input and
// output, and which ends with that.
func newStdioGuest(t *testing.T, socket string) (cmd *exec.Cmd, in, out *os.File, stderr *bytes.Buffer) {
	t.Helper()
	args := []string{guesttest.GuestArg, "serve", "--stdio", "--leased", "--socket", socket}
	if os.Geteuid() != 0 {
		args = append(args, "--self")
	}
	cmd = exec.Command("/proc/self/exe", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr = new(bytes.Buffer)
	cmd.Stderr = stderr
	theirIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); out.Close() })
	cmd.Stdin, cmd.Stdout = theirIn, theirOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	theirIn.Close()
	theirOut.Close()
	return cmd, in, out, stderr
}

// pipes is a connection made of two pipes.
type pipes struct {
	*os.File // for what is sent
	out      *os.File
}

func (p pipes) Read(b []byte) (int, error) { return p.out.Read(b) }
func (p pipes) Close() error               { return errors.Join(p.File.Close(), p.out.Close()) }
func (pipes) LocalAddr() net.Addr          { return &net.UnixAddr{} }
func (pipes) RemoteAddr() net.Addr         { return &net.UnixAddr{} }

// TestStdio has a guest wait until it is spoken to: its other end may come after
// it, and would miss what was said before.
func TestStdio(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "r", "s")
	cmd, in, out, stderr := newStdioGuest(t, socket)
	c := guestapi.NewClient(guesttest.Dialer(socket))
	defer c.Close()
	guesttest.Eventually(t, "the guest serves its socket", func() bool { return c.Health(t.Context()) == nil })
	if err := out.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := out.Read(make([]byte, 100)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("before anything was said the guest says %d bytes: %v", n, err)
	}
	if err := out.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	carrier := guestapi.NewCarrier(pipes{in, out})
	carried := guestapi.NewClient(carrier.Dial)
	if err := carried.Health(t.Context()); err != nil {
		t.Errorf("over the standard streams: %v", err)
	}
	carried.Close()
	carrier.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("the guest's end: %v: %s", err, stderr)
	}
}

// TestStdioFailure has a guest fail before its other end is there.
func TestStdioFailure(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, in, _, stderr := newStdioGuest(t, filepath.Join(file, "r", "s"))
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
		t.Fatalf("it ended before anybody could hear why: %s", stderr)
	case <-time.After(100 * time.Millisecond):
	}
	if _, err := in.Write([]byte("P")); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil || !strings.Contains(stderr.String(), "not a directory") {
		t.Errorf("%v: %q; want that it fails and says why", err, stderr)
	}
}
