//go:build linux

package cli

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/app"
)

// TestFirstToken starts a server whose standard error is a terminal: the token is
// shown there, and is in no file. The script serve has the other case.
func TestFirstToken(t *testing.T) {
	control, terminal := openTerminal(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	dir := t.TempDir()
	stale := filepath.Join(dir, "token")
	if err := os.WriteFile(stale, []byte("of an earlier start"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"GLOVEBOX_DRIVER": "fake", "GLOVEBOX_STATE_DIR": dir, "NO_COLOR": "1"}
	p := &program{
		Streams:     Streams{In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: terminal, Getenv: func(name string) string { return env[name] }},
		testDrivers: map[string]app.Maker{"fake": fakeDriver},
	}
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, []string{"serve", "--listen", "127.0.0.1:0"}, p) }()
	lines := bufio.NewScanner(control)
	shown := false
	for !shown && lines.Scan() {
		shown = strings.HasPrefix(strings.TrimSpace(lines.Text()), "gbx_")
	}
	go func() { // so that the server never waits for its reader
		for lines.Scan() {
		}
	}()
	cancel()
	if status := <-ended; status != 0 || !shown {
		t.Errorf("the server ended with %d, and showed the token: %t", status, shown)
	}
	if _, err := os.Stat(stale); err == nil {
		t.Errorf("%s is still there, with a token that is not the new one", stale)
	}
}

// openTerminal returns both ends of a pseudo-terminal.
func openTerminal(t *testing.T) (control, terminal *os.File) {
	t.Helper()
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { control.Close() })
	if err := unix.IoctlSetPointerInt(int(control.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, control.Fd(), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY)
	if errno != 0 {
		t.Fatal(errno)
	}
	terminal = os.NewFile(fd, "terminal")
	t.Cleanup(func() { terminal.Close() })
	return control, terminal
}
