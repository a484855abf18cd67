package drivertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Box is a driver's box with a client of its guest.
type Box struct {
	driver.Box
	Client *guestapi.Client
	Spec   *driver.Spec // nil for an attached box
}

// NewBox returns b with a client, which is closed at the end of the test.
func NewBox(t testing.TB, b driver.Box) *Box {
	t.Helper()
	c := guestapi.NewClient(b.Dial)
	t.Cleanup(c.Close)
	return &Box{Box: b, Client: c}
}

// Launch creates a box that is destroyed at the end of the test.
func Launch(t testing.TB, d driver.Driver, spec *driver.Spec) *Box {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stepTime)
	defer cancel()
	b, err := d.Create(ctx, spec)
	if err != nil {
		t.Fatalf("Driver.Create: %v (hint: %s)", err, sandbox.HintOf(err))
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stepTime)
		defer cancel()
		if err := b.Destroy(ctx); err != nil {
			t.Errorf("Box.Destroy: %v", err)
		}
	})
	box := NewBox(t, b)
	box.Spec = spec
	return box
}

// A Cmd is a process to run in a box.
type Cmd struct {
	Argv  []string // the program and its arguments, or
	Shell string   // a script for /bin/sh -c

	User    string            // sandbox.User if empty
	Dir     string            // the guest's default if empty
	Env     map[string]string // added to the guest's default
	Stdin   []byte            // nil: end of file at once
	Open    bool              // leave the input open
	Timeout time.Duration     // 0: none
	PTY     *guestapi.PTYSize // nil: no terminal
	Tag     string
	Keep    bool

	// OnData, if not nil, takes the output; Result then has none of it.
	OnData func(*guestapi.DataEvent)
}

// Sh is a Cmd of a shell script.
func Sh(script string) Cmd { return Cmd{Shell: script} }

// Python is a Cmd of a Python program. path is the interpreter's path.
func Python(path, program string, args ...string) Cmd {
	return Cmd{Argv: append([]string{path, "-c", program}, args...)}
}

// A Result is the outcome of a process.
type Result struct {
	PID         uint32
	Stdout      string
	Stderr      string
	PTY         string
	End         guestapi.End
	Took        time.Duration
	inputFailed error
}

func (r Result) String() string {
	return fmt.Sprintf("%s, exit code %d, text %q, cause %q, %+v\nstdout: %q\nstderr: %q",
		r.End.Status, r.End.Code(), r.End.Text, r.End.Cause, r.End.Detail, short(r.Stdout), short(r.Stderr))
}

func short(s string) string {
	if len(s) > 800 {
		return s[:400] + " ... " + s[len(s)-400:]
	}
	return s
}

// maxResult bounds the output in a Result, in bytes. A test that expects more
// output uses OnData.
const maxResult = 16 << 20

// Start starts a process. It sends no input.
func (b *Box) Start(ctx context.Context, c Cmd) (*guestapi.Events, error) {
	argv := c.Argv
	if c.Shell != "" {
		argv = []string{"/bin/sh", "-c", c.Shell}
	}
	if len(argv) == 0 {
		return nil, errors.New("drivertest: Cmd has neither Argv nor Shell")
	}
	req := &guestapi.StartRequest{
		Process: guestapi.ProcessConfig{Cmd: argv[0], Args: argv[1:], Envs: c.Env, Cwd: c.Dir},
		Tag:     c.Tag,
		Keep:    c.Keep,
	}
	if c.Stdin == nil && !c.Open && c.PTY == nil {
		req.Stdin = new(bool)
	}
	if c.PTY != nil {
		req.PTY = &guestapi.PTY{Size: c.PTY}
	}
	return b.Client.Start(ctx, req, guestapi.StartOptions{User: c.User, Timeout: c.Timeout})
}

// Run runs a process to its end. The error is the guest's or the connection's. A
// program that fails is not an error.
func (b *Box) Run(ctx context.Context, c Cmd) (Result, error) {
	began := time.Now()
	p, err := b.Start(ctx, c)
	if err != nil {
		return Result{}, err
	}
	defer p.Close()
	fed := make(chan error, 1)
	if c.Stdin != nil {
		go func() { fed <- b.feed(ctx, p.PID(), c.Stdin, c.Open) }()
	} else {
		fed <- nil
	}
	r, err := Collect(p, c.OnData)
	r.Took = time.Since(began)
	if err != nil {
		return r, err
	}
	r.inputFailed = <-fed // a program need not read its input
	return r, nil
}

// feed sends input in pieces of 256 KiB, then closes it unless open is true.
func (b *Box) feed(ctx context.Context, pid uint32, input []byte, open bool) error {
	sel := guestapi.ProcessSelector{PID: pid}
	for len(input) > 0 {
		n := min(len(input), 256<<10)
		if err := b.Client.SendInput(ctx, sel, input[:n], false); err != nil {
			return err
		}
		input = input[n:]
	}
	if open {
		return nil
	}
	return b.Client.CloseStdin(ctx, sel)
}

// Collect reads a stream of events to its end. Output goes to onData if that
// is not nil, and into the result otherwise.
func Collect(p *guestapi.Events, onData func(*guestapi.DataEvent)) (Result, error) {
	var stdout, stderr, pty bytes.Buffer
	r := Result{PID: p.PID()}
	ended := false
	fill := func() {
		r.Stdout, r.Stderr, r.PTY = stdout.String(), stderr.String(), pty.String()
	}
	for {
		ev, err := p.Next()
		if errors.Is(err, io.EOF) && ended {
			fill()
			return r, nil
		}
		if err != nil {
			fill()
			return r, err
		}
		switch {
		case ended:
			return r, fmt.Errorf("an event after the end event: %+v", ev)
		case ev.End != nil:
			ended, r.End = true, *ev.End
		case ev.Data != nil && onData != nil:
			onData(ev.Data)
		case ev.Data != nil:
			stdout.Write(ev.Data.Stdout)
			stderr.Write(ev.Data.Stderr)
			pty.Write(ev.Data.PTY)
			if stdout.Len()+stderr.Len()+pty.Len() > maxResult {
				fill()
				return r, fmt.Errorf("more than %d bytes of output, which the test did not expect", maxResult)
			}
		}
	}
}

// MustRun runs a process to its end and fails the test if Glovebox fails.
func (b *Box) MustRun(t testing.TB, c Cmd) Result {
	t.Helper()
	r, err := b.Run(step(t), c)
	if err != nil {
		t.Fatalf("run %s: %v\nso far: %v", c.name(), err, r)
	}
	return r
}

// MustSh runs a shell script and returns its output. It fails the test if the
// script fails.
func (b *Box) MustSh(t testing.TB, script string) string {
	t.Helper()
	return b.mustOK(t, Sh(script))
}

// MustRoot is MustSh as sandbox-root.
func (b *Box) MustRoot(t testing.TB, script string) string {
	t.Helper()
	return b.mustOK(t, Cmd{Shell: script, User: sandbox.Root})
}

func (b *Box) mustOK(t testing.TB, c Cmd) string {
	t.Helper()
	r := b.MustRun(t, c)
	if r.End.Status != guestapi.EndOK {
		t.Fatalf("run %s: want success, got %v", c.name(), r)
	}
	return r.Stdout
}

func (c Cmd) name() string {
	if c.Shell != "" {
		return strconv.Quote(short(c.Shell))
	}
	return short(fmt.Sprintf("%q", c.Argv))
}

// Dir returns the working directory of programs in the box. User code can write
// to it.
func (b *Box) Dir(t testing.TB) string {
	t.Helper()
	return strings.TrimSuffix(b.MustSh(t, "pwd"), "\n")
}

// Answers checks that the box answers and runs a program within answerTime.
func (b *Box) Answers(t testing.TB, when string) {
	t.Helper()
	if took := b.answers(t, when); took > 0 {
		t.Logf("%s: answered and ran a program in %v", when, took.Round(time.Millisecond))
	}
}

// answers does the check of Answers. It returns the time taken, or 0 on failure.
func (b *Box) answers(t testing.TB, when string) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), answerTime)
	defer cancel()
	began := time.Now()
	if err := b.Client.Health(ctx); err != nil {
		t.Errorf("%s: the guest does not answer within %v: %v", when, answerTime, err)
		return 0
	}
	r, err := b.Run(ctx, Sh("echo alive"))
	if err != nil || r.Stdout != "alive\n" {
		t.Errorf("%s: no program runs within %v: %v, %v", when, answerTime, err, r)
		return 0
	}
	return time.Since(began)
}

// answerTime is the timeout for a health check and a program while other boxes
// misbehave. It is about a second, with a margin for a busy test machine.
const answerTime = 3 * time.Second * raceFactor
