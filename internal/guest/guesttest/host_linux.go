package guesttest

import (
	"bytes"
	"context"
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

	"github.com/glovebox-dev/glovebox/internal/guest"
	"github.com/glovebox-dev/glovebox/internal/guest/procfs"
	"github.com/glovebox-dev/glovebox/internal/guest/sudo"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// These arguments make the test's own program be a guest, or a client that
// asks whether one answers.
const (
	GuestArg  = "be-a-guest"
	ClientArg = "be-a-client"
)

// SudoSocket is the name of the socket of a command sudo, beside the command.
const SudoSocket = "sudo.sock"

// Main runs the tests of m, or is a guest or a client if a test started it so.
func Main(m *testing.M) {
	if os.Args[0] == guest.Program { // what a guest executes
		os.Exit(guest.Main(os.Args[1:]))
	}
	if guest.IsSudo(os.Args) {
		os.Exit(sudo.Main(filepath.Join(filepath.Dir(os.Args[0]), SudoSocket), os.Args[1:]))
	}
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case GuestArg:
			os.Exit(guest.Main(os.Args[2:]))
		case ClientArg:
			c := guestapi.NewClient(Dialer(os.Args[2]))
			if err := c.Health(context.Background()); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

// Dialer dials the socket of a guest.
func Dialer(socket string) guestapi.Dialer {
	return func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
}

// A Host is a running guest and a client of it.
type Host struct {
	*guestapi.Client
	T      testing.TB // of the test, or of a part of it
	Socket string
	PID    int
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

// New starts a guest, and in the end checks that it leaves nothing. As
// root, its user is the sandbox's user; otherwise it runs all as itself.
func New(t testing.TB, flags ...string) *Host {
	t.Helper()
	pprof.SetGoroutineLabels(pprof.WithLabels(t.Context(), pprof.Labels(testLabel, t.Name())))
	// Not t.TempDir: a socket's path is short, and the directory is to be
	// entered by the user.
	dir, err := os.MkdirTemp("", "guest")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := &Host{T: t, Socket: filepath.Join(dir, "run", "guest.sock")}
	args := []string{GuestArg, "serve", "--socket", h.Socket}
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
	h.PID = cmd.Process.Pid
	h.Client = guestapi.NewClient(Dialer(h.Socket))
	goroutines, files := goroutinesOf(t), 0
	t.Cleanup(func() {
		h.Close()
		left := h.Descendants()
		if len(left) == 0 && !t.Failed() {
			Eventually(t, "the guest has closed its files", func() bool { return h.OpenFiles() <= files })
			Eventually(t, "the client's goroutines have ended", func() bool { return goroutinesOf(t) <= goroutines })
		}
		_ = cmd.Process.Signal(syscall.SIGTERM) // if it has ended, Wait reports how
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
			files = h.OpenFiles()
			return h
		}
		if time.Now().After(deadline) {
			t.Fatalf("guest does not answer: %v\n%s", err, stderr.Bytes())
		}
	}
}

// Descendants returns what runs below the guest.
func (h *Host) Descendants() []procfs.Process {
	all, err := procfs.All()
	if err != nil {
		h.T.Fatal(err)
	}
	var list []procfs.Process
	for _, p := range procfs.Descendants(all, h.PID) {
		if !p.Dead() {
			list = append(list, p)
		}
	}
	return list
}

// OpenFiles counts the descriptors that the guest has open.
func (h *Host) OpenFiles() int {
	h.T.Helper()
	dir := "/proc/" + strconv.Itoa(h.PID) + "/fd/"
	entries, err := os.ReadDir(dir)
	if err != nil {
		h.T.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		// The guest opens the file for the contents of changes once.
		if to, err := os.Readlink(dir + e.Name()); err != nil || !strings.Contains(to, "/.glovebox-changes-") {
			n++
		}
	}
	return n
}

// Programs counts the programs of that name that run below the guest. A child
// that has yet to execute its program is not one.
func (h *Host) Programs(name string) int {
	n := 0
	for _, p := range h.Descendants() {
		comm, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/comm")
		if err == nil && string(comm) == name+"\n" {
			n++
		}
	}
	return n
}

// Memory returns the guest's resident memory in bytes.
func (h *Host) Memory() int {
	h.T.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(h.PID) + "/status")
	if err != nil {
		h.T.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.Atoi(strings.Fields(v)[0])
			if err != nil {
				h.T.Fatal(err)
			}
			return n << 10
		}
	}
	h.T.Fatal("no VmRSS")
	return 0
}

// A Result is what a process wrote and how it ended.
type Result struct {
	Stdout, Stderr, PTY string
	End                 *guestapi.End
}

// Collect reads a process's stream to its end.
func Collect(t testing.TB, p *guestapi.Events) Result {
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
			return Result{stdout.String(), stderr.String(), pty.String(), ev.End}
		}
		stdout.Write(ev.Data.Stdout)
		stderr.Write(ev.Data.Stderr)
		pty.Write(ev.Data.PTY)
	}
}

// Sh returns the request to run a shell script without input.
func Sh(script string) *guestapi.StartRequest {
	no := false
	return &guestapi.StartRequest{
		Process: guestapi.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", script}, Cwd: "/"},
		Stdin:   &no,
	}
}

// Begin starts a run, which ends with the test at the latest.
func (h *Host) Begin(req *guestapi.StartRequest, opts guestapi.StartOptions) *guestapi.Events {
	h.T.Helper()
	p, err := h.Start(h.T.Context(), req, opts)
	if err != nil {
		h.T.Fatal(err)
	}
	h.T.Cleanup(func() { p.Close() })
	return p
}

// Run runs a shell script to its end.
func (h *Host) Run(script string) Result {
	h.T.Helper()
	return Collect(h.T, h.Begin(Sh(script), guestapi.StartOptions{}))
}

// PIDOf selects a process by its pid.
func PIDOf(p *guestapi.Events) guestapi.ProcessSelector {
	return guestapi.ProcessSelector{PID: p.PID()}
}

// WantKind fails the test unless err is of a kind and contains text.
func WantKind(t testing.TB, err error, kind sandbox.Kind, text string) {
	t.Helper()
	if sandbox.KindOf(err) != kind || !strings.Contains(err.Error(), text) {
		t.Fatalf("error is %v of kind %q, want %q of kind %q", err, sandbox.KindOf(err), text, kind)
	}
}

// Eventually waits until ok is true, and fails the test after 10 s.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

// NeedRoot skips the test for an ordinary user.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}
