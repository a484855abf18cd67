package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/procfs"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// These arguments make the test's own program be a guest, or a client that
// asks whether one answers.
const (
	guestArg  = "be-a-guest"
	clientArg = "be-a-client"
)

func TestMain(m *testing.M) {
	if os.Args[0] == Program { // what a guest executes
		os.Exit(Main(os.Args[1:]))
	}
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case guestArg:
			os.Exit(Main(os.Args[2:]))
		case clientArg:
			c := guestapi.NewClient(dialer(os.Args[2]))
			if err := c.Health(context.Background()); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

func dialer(socket string) guestapi.Dialer {
	return func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
}

// A host is a running guest and a client of it.
type host struct {
	*guestapi.Client
	t      testing.TB
	socket string
	pid    int
}

// testLabel marks the goroutines of a test, each of which passes it on to those
// that it begins.
const testLabel = "test"

// goroutinesOf counts the goroutines of a test since its first host: others run
// at the same time.
func goroutinesOf(t testing.TB) int {
	t.Helper()
	var b bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
		t.Fatal(err)
	}
	all := 0
	_, records, _ := strings.Cut(b.String(), "\n") // behind their number
	for r := range strings.SplitSeq(records, "\n\n") {
		var n int
		if strings.Contains(r, fmt.Sprintf("%q:%q", testLabel, t.Name())) {
			if _, err := fmt.Sscan(r, &n); err != nil {
				t.Fatalf("%v in\n%s", err, r)
			}
		}
		all += n
	}
	return all
}

// newHost starts a guest, and in the end checks that it leaves nothing. As
// root, its user is the sandbox's user; otherwise it runs all as itself.
func newHost(t testing.TB, flags ...string) *host {
	t.Helper()
	pprof.SetGoroutineLabels(pprof.WithLabels(t.Context(), pprof.Labels(testLabel, t.Name())))
	// Not t.TempDir: a socket's path is short, and the directory is to be
	// entered by the user.
	dir, err := os.MkdirTemp("", "guest")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := &host{t: t, socket: filepath.Join(dir, "run", "guest.sock")}
	args := []string{guestArg, "serve", "--socket", h.socket}
	if os.Geteuid() != 0 {
		args = append(args, "--self")
	}
	cmd := exec.Command("/proc/self/exe", append(args, flags...)...)
	cmd.Env = []string{"GUEST_SECRET=x"}
	// A test that panics leaves nothing either.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h.pid = cmd.Process.Pid
	h.Client = guestapi.NewClient(dialer(h.socket))
	goroutines, files := goroutinesOf(t), 0
	t.Cleanup(func() {
		h.Close()
		left := h.descendants()
		if len(left) == 0 && !t.Failed() {
			eventually(t, "the guest has closed its files", func() bool { return h.files() <= files })
			eventually(t, "the client's goroutines have ended", func() bool { return goroutinesOf(t) <= goroutines })
		}
		cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("guest: %v\n%s", err, stderr.Bytes())
		}
		for _, pid := range left {
			if p, ok := procfs.Read(pid.PID); ok && p.Start == pid.Start && !p.Dead() {
				t.Errorf("process %d outlived the guest", pid.PID)
			}
		}
	})
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		err := h.Health(t.Context())
		if err == nil {
			files = h.files()
			return h
		}
		if time.Now().After(deadline) {
			t.Fatalf("guest does not answer: %v\n%s", err, stderr.Bytes())
		}
	}
}

// descendants returns what runs below the guest.
func (h *host) descendants() []procfs.Process {
	all, err := procfs.All()
	if err != nil {
		h.t.Fatal(err)
	}
	var list []procfs.Process
	for _, p := range procfs.Descendants(all, h.pid) {
		if !p.Dead() {
			list = append(list, p)
		}
	}
	return list
}

// files counts the descriptors that the guest has open.
func (h *host) files() int {
	h.t.Helper()
	entries, err := os.ReadDir("/proc/" + strconv.Itoa(h.pid) + "/fd")
	if err != nil {
		h.t.Fatal(err)
	}
	return len(entries)
}

// programs counts the programs of that name that run below the guest. A child
// that has yet to execute its program is not one.
func (h *host) programs(name string) int {
	n := 0
	for _, p := range h.descendants() {
		comm, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/comm")
		if err == nil && string(comm) == name+"\n" {
			n++
		}
	}
	return n
}

// rss returns the guest's resident memory in bytes.
func (h *host) rss() int {
	h.t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(h.pid) + "/status")
	if err != nil {
		h.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.Atoi(strings.Fields(v)[0])
			if err != nil {
				h.t.Fatal(err)
			}
			return n << 10
		}
	}
	h.t.Fatal("no VmRSS")
	return 0
}

// A result is what a process wrote and how it ended.
type result struct {
	stdout, stderr, pty string
	end                 *guestapi.EndEvent
}

// collect reads a process's stream to its end.
func collect(t testing.TB, p *guestapi.Process) result {
	t.Helper()
	var stdout, stderr, pty bytes.Buffer
	for {
		ev, err := p.Next()
		if err != nil {
			t.Fatalf("next event: %v (stdout %.200q, stderr %.200q)", err, stdout.Bytes(), stderr.Bytes())
		}
		if ev.End != nil {
			if _, err := p.Next(); err != io.EOF {
				t.Fatalf("after the end: %v", err)
			}
			return result{stdout.String(), stderr.String(), pty.String(), ev.End}
		}
		stdout.Write(ev.Data.Stdout)
		stderr.Write(ev.Data.Stderr)
		pty.Write(ev.Data.PTY)
	}
}

func sh(script string) *guestapi.StartRequest {
	no := false
	return &guestapi.StartRequest{
		Process: guestapi.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", script}, Cwd: "/"},
		Stdin:   &no,
	}
}

func (h *host) start(req *guestapi.StartRequest, opts guestapi.StartOptions) *guestapi.Process {
	h.t.Helper()
	p, err := h.Start(h.t.Context(), req, opts)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { p.Close() })
	return p
}

func (h *host) run(script string) result {
	h.t.Helper()
	return collect(h.t, h.start(sh(script), guestapi.StartOptions{}))
}

func pidOf(p *guestapi.Process) guestapi.ProcessSelector {
	return guestapi.ProcessSelector{PID: p.PID()}
}

func wantKind(t testing.TB, err error, kind sandbox.Kind, text string) {
	t.Helper()
	if sandbox.KindOf(err) != kind || !strings.Contains(err.Error(), text) {
		t.Fatalf("error is %v of kind %q, want %q of kind %q", err, sandbox.KindOf(err), text, kind)
	}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

func TestConnectorPassesSocket(t *testing.T) {
	h := newHost(t)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "theirs")
	cmd := exec.Command("/proc/self/exe", guestArg, "connect", "--socket", h.socket)
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
	args := []string{guestArg, "--socket", filepath.Join(dir, "r", "s"), "--conn-fd", "3"}
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
	h := newHost(t)
	cmd := exec.Command("/proc/self/exe", guestArg, "relay", "--socket", h.socket)
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
	p, err := c.Start(t.Context(), sh("echo hello"), guestapi.StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if r := collect(t, p); r.stdout != "hello\n" {
		t.Fatalf("stdout is %q", r.stdout)
	}
}

func TestSocketIsForTheGuestsUserOnly(t *testing.T) {
	h := newHost(t)
	for path, want := range map[string]os.FileMode{h.socket: 0o600, filepath.Dir(h.socket): 0o700} {
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
	needRoot(t)
	h := newHost(t)
	for _, path := range []string{filepath.Dir(filepath.Dir(h.socket)), filepath.Dir(h.socket)} {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(h.socket, 0o666); err != nil {
		t.Fatal(err)
	}
	for uid, want := range map[uint32]bool{0: true, account.UserID: false} {
		cmd := exec.Command("/proc/self/exe", clientArg, h.socket)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		if out, err := cmd.CombinedOutput(); (err == nil) != want {
			t.Errorf("uid %d was served: %v, want %v: %s", uid, err == nil, want, out)
		}
	}
}
