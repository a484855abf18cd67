package drivertest

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// testOutput checks that output is complete and in order, that streams are
// separate, and that a slow reader slows the program.
func testOutput(t *testing.T, s *suite) {
	b := s.newBox(t)
	t.Run("Apart", func(t *testing.T) { outputApart(t, b) })
	t.Run("Bytes", func(t *testing.T) { outputBytes(t, b) })
	t.Run("Prompt", func(t *testing.T) { outputPrompt(t, b) })
	t.Run("Last", func(t *testing.T) { outputLast(t, b) })
	t.Run("Big", func(t *testing.T) { outputBig(t, b) })
	t.Run("BackPressure", func(t *testing.T) { outputBackPressure(t, b) })
	t.Run("Abandoned", func(t *testing.T) { outputAbandoned(t, b) })
}

func outputApart(t *testing.T, b *Box) {
	r := b.MustRun(t, Sh("i=0; while [ $i -lt 500 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done"))
	for name, got := range map[string]string{"out": r.Stdout, "err": r.Stderr} {
		var want strings.Builder
		for i := range 500 {
			fmt.Fprintf(&want, "%s %d\n", name, i)
		}
		if got != want.String() {
			t.Errorf("std%s must have its own lines, all, in order; got %d bytes %q, want %d", name, len(got), short(got), want.Len())
		}
	}
	if r := b.MustRun(t, Sh("echo nothing else >&2")); r.Stdout != "" || r.Stderr != "nothing else\n" {
		t.Errorf("stderr alone: got %v", r)
	}
}

func outputBytes(t *testing.T, b *Box) {
	// Write every byte, as an octal escape of printf.
	var script, want bytes.Buffer
	script.WriteString("printf '")
	for c := range 256 {
		fmt.Fprintf(&script, "\\%03o", c)
		want.WriteByte(byte(c))
	}
	script.WriteString("'")
	if r := b.MustRun(t, Sh(script.String())); r.Stdout != want.String() {
		t.Errorf("all byte values must come through: got %q", r.Stdout)
	}
}

// outputPrompt checks that output arrives when the program writes it. It must
// not wait for a full buffer or the program's end.
func outputPrompt(t *testing.T, b *Box) {
	p, first := b.startReady(t, Sh("printf now; sleep 600"))
	defer p.Close()
	if first != "now" {
		t.Errorf("first output is %q, want %q", first, "now")
	}
	if err := b.Client.Signal(step(t), guestapi.ProcessSelector{PID: p.PID()}, guestapi.SIGKILL); err != nil {
		t.Errorf("Signal: %v", err)
	}
}

// outputLast checks that the last output of a program is not lost when the
// program exits or is killed.
func outputLast(t *testing.T, b *Box) {
	for i := range 30 {
		want := strings.Repeat("x", 60000) + strconv.Itoa(i)
		script := "printf '%s' \"$BIG\"; exit 9"
		if i%2 == 1 {
			script = "printf '%s' \"$BIG\"; kill -9 $$"
		}
		r := b.MustRun(t, Cmd{Shell: script, Env: map[string]string{"BIG": want}})
		if r.Stdout != want {
			t.Fatalf("run %d: got %d bytes of the %d written just before the end", i, len(r.Stdout), len(want))
		}
	}
}

// A lineCheck checks the output of `seq 1 n`.
type lineCheck struct {
	next    int
	line    []byte
	total   int64
	problem string
}

func (c *lineCheck) write(p []byte) {
	c.total += int64(len(p))
	for len(p) > 0 && c.problem == "" {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			c.line = append(c.line, p...)
			if len(c.line) > 100 {
				c.problem = fmt.Sprintf("line %d has no end", c.next+1)
			}
			return
		}
		c.line = append(c.line, p[:i]...)
		p = p[i+1:]
		c.next++
		if n, err := strconv.Atoi(string(c.line)); err != nil || n != c.next {
			c.problem = fmt.Sprintf("line %d is %q: output is lost or out of order", c.next, c.line)
		}
		c.line = c.line[:0]
	}
}

func (c *lineCheck) check(t testing.TB, name string, n int) {
	t.Helper()
	if c.problem == "" && (c.next != n || len(c.line) > 0) {
		c.problem = fmt.Sprintf("it ends after line %d", c.next)
	}
	if c.problem != "" {
		t.Errorf("%s of %d numbered lines, %d bytes: %s", name, n, c.total, c.problem)
	}
}

// bigLines is the number of numbered lines in 100 MiB.
const bigLines = 12_885_413

// streamHeap bounds the heap growth while large data streams, in bytes. It is
// much more than windows and buffers, and much less than the data.
const streamHeap = 40 << 20

func outputBig(t *testing.T, b *Box) {
	n := bigLines
	if testing.Short() {
		n /= 10
	}
	var out, errs lineCheck
	heap := watchHeap()
	r := b.MustRun(t, Cmd{
		Shell: fmt.Sprintf("seq 1 100000 >&2 & seq 1 %d; wait; exit 11", n),
		OnData: func(d *guestapi.DataEvent) {
			out.write(d.Stdout)
			errs.write(d.Stderr)
		},
	})
	heap.check(t, "streaming output", streamHeap)
	if r.End.Code() != 11 {
		t.Errorf("want exit code 11, got %v", r)
	}
	out.check(t, "stdout", n)
	errs.check(t, "stderr", 100000)
	t.Logf("%d MiB in %v, %.0f MiB/s", out.total>>20, r.Took.Round(time.Millisecond), float64(out.total)/(1<<20)/r.Took.Seconds())
}

// outputBackPressure reads nothing for a while. The program must block, and
// other processes of the same client and box must not.
func outputBackPressure(t *testing.T, b *Box) {
	const n = 4_000_000 // 30 MB
	b.MustSh(t, "rm -f done")
	heap := watchHeap()
	p, err := b.Start(step(t), Sh(fmt.Sprintf("seq 1 %d; touch done", n)))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	time.Sleep(2 * time.Second)
	b.Answers(t, "while a stream of the same box is not read")
	if r := b.MustRun(t, Sh("test -e done")); r.End.Code() == 0 {
		t.Error("a program wrote 30 MB that nobody read and ended: its output is buffered without back-pressure")
	}
	var out lineCheck
	r, err := Collect(p, func(d *guestapi.DataEvent) { out.write(d.Stdout) })
	if err != nil || r.End.Code() != 0 {
		t.Errorf("after reading again: %v, %v", r, err)
	}
	out.check(t, "stdout", n)
	heap.check(t, "an unread stream", streamHeap)
}

// outputAbandoned closes a program's stream, without Keep. The program must not
// block on output that no client will read.
func outputAbandoned(t *testing.T, b *Box) {
	b.MustSh(t, "rm -f finished")
	p, err := b.Start(step(t), Sh("seq 1 1000000; touch finished"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("Process.Close: %v", err)
	}
	eventually(t, "a program without Keep, whose stream was closed, does not get on: what nobody reads is to be dropped", func() bool {
		return b.MustRun(t, Sh("test -e finished")).End.Code() == 0
	})
}
