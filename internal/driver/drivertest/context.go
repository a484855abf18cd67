package drivertest

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// testContext checks that code runs in persistent interpreters. The guest's own
// tests cover the details.
func testContext(t *testing.T, s *suite) {
	s.python(t)
	b := s.open(t).box(t)
	t.Run("State", func(t *testing.T) { contextState(t, b) })
	t.Run("Syntax", func(t *testing.T) { contextSyntax(t, b) })
	t.Run("Stop", func(t *testing.T) { contextStop(t, b) })
	t.Run("Languages", func(t *testing.T) { contextLanguages(t, b) })
	t.Run("Several", func(t *testing.T) { contextSeveral(t, b) })
	t.Run("Inside", func(t *testing.T) { contextInside(t, s) })
}

// contextLanguages runs code of the languages that few images have, in those that
// this one has.
func contextLanguages(t *testing.T, b *Box) {
	for _, l := range []struct{ name, set, get, want string }{
		{"r", "x <- 41L", "x + 1L", "[1] 42"},
		{"java", "int x = 41;", "x + 1", "42"},
	} {
		t.Run(l.name, func(t *testing.T) {
			in := func(code string) *guestapi.ExecuteRequest {
				return &guestapi.ExecuteRequest{ContextID: "language-" + l.name, Create: true, Language: l.name, Code: code}
			}
			stream, err := b.Client.Execute(step(t), "", in(""), nil)
			if errors.Is(err, sandbox.NotFound) {
				t.Skipf("the image lacks it: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			for err == nil {
				_, err = stream.Next()
			}
			stream.Close()
			if x := b.Execute(t, in(l.set), nil); x.end.Status != guestapi.EndOK {
				t.Fatalf("%s: %+v", l.set, x)
			}
			if x := b.Execute(t, in(l.get), nil); x.result != l.want {
				t.Errorf("%s: %+v, want %s", l.get, x, l.want)
			}
			if err := b.Client.RemoveContext(step(t), "language-"+l.name); err != nil {
				t.Error(err)
			}
		})
	}
}

// contextInside has a program use the contexts of its box as E2B's interpreter.
func contextInside(t *testing.T, s *suite) {
	st := s.open(t)
	if !st.Info().Features.Interpreter {
		t.Skip("the driver declares no interpreter for programs")
	}
	b := st.box(t)
	const ask = `
import json, sys, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
def ask(path, body=None, **headers):
    data = None if body is None else json.dumps(body).encode()
    return opener.open(urllib.request.Request("http://localhost:49999" + path, data, headers)).read().decode()
try:
    if sys.argv[1] == "health":
        print(ask("/health"))
    else:
        # The user in this header is root.
        print([json.loads(line).get("text") for line in ask("/execute", {"code": sys.argv[1]}, Authorization="Basic cm9vdDo=").splitlines()])
except OSError as e:
    print("failed:", e)
`
	if r := b.MustRun(t, Python(s.h.Python, ask, "health")); !strings.HasPrefix(r.Stdout, "failed") {
		t.Errorf("without a client of E2B's protocol there is an interpreter: %v", r)
	}
	// Such a client sends no header of ours.
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return b.Dial(ctx) }}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(step(t), http.MethodGet, "http://box"+guestapi.PathContexts, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	who := b.MustRun(t, Python(s.h.Python, "import os; print(os.getuid())"))
	r := b.MustRun(t, Python(s.h.Python, ask, "import os; x = os.getuid(); x"))
	if !strings.Contains(r.Stdout, "'"+strings.TrimSpace(who.Stdout)+"'") {
		t.Errorf("the interpreter that a program reaches runs as %v, want %s", r, who.Stdout)
	}
	if x := b.Execute(t, inContext(guestapi.DefaultContextID("python"), "x"), nil); x.result != strings.TrimSpace(who.Stdout) {
		t.Errorf("its context is another than the client's: %+v", x)
	}
}

// An execution is the outcome of one run in a context.
type execution struct {
	stdout, stderr string
	result         string // text of the last expression
	shown          map[string]bool
	failed         *sandbox.RunError
	end            guestapi.End
	count          int
}

// inContext is a request for a run in a Python context.
func inContext(id, code string) *guestapi.ExecuteRequest {
	return &guestapi.ExecuteRequest{ContextID: id, Create: true, Language: "python", Code: code}
}

// Execute runs code. If on is not nil, Execute calls it for each event.
func (b *Box) Execute(t testing.TB, req *guestapi.ExecuteRequest, on func(*guestapi.Event)) (x execution) {
	t.Helper()
	stream, err := b.Client.Execute(step(t), "", req, nil)
	if err != nil {
		t.Fatalf("execute %q: %v", req.Code, err)
	}
	defer stream.Close()
	x.shown = map[string]bool{}
	for {
		ev, err := stream.Next()
		if err != nil {
			t.Fatalf("execute %q: %v", req.Code, err)
		}
		if on != nil {
			on(ev)
		}
		switch {
		case ev.Turn != nil:
			x.count = ev.Turn.Count
		case ev.Data != nil:
			x.stdout += string(ev.Data.Stdout)
			x.stderr += string(ev.Data.Stderr)
		case ev.Result != nil:
			for mime := range ev.Result.Data {
				x.shown[mime] = true
			}
			if ev.Result.Main {
				x.result = strings.Trim(string(ev.Result.Data["text/plain"]), `"`)
			}
		case ev.Error != nil:
			x.failed = ev.Error
		case ev.End != nil:
			x.end = *ev.End
			return x
		}
	}
}

func contextState(t *testing.T, b *Box) {
	req := inContext("state-python", "import os, sys\nn = 41\nprint('out', os.environ['ONCE'])\nprint('err', file=sys.stderr)")
	req.EnvVars = map[string]string{"ONCE": "x"}
	if x := b.Execute(t, req, nil); x.stdout != "out x\n" || x.stderr != "err\n" || x.end.Status != guestapi.EndOK || x.count != 1 {
		t.Errorf("the first run: %+v", x)
	}
	if x := b.Execute(t, inContext("state-python", "n += 1\nos.environ.get('ONCE'), n"), nil); x.result != "(None, 42)" {
		t.Errorf("the second run: %+v", x)
	}
	if got := b.Execute(t, inContext("state-python", "os.getcwd()"), nil).result; b.Dir(t) != strings.Trim(got, "'") {
		t.Errorf("it works in %s, programs in %s", got, b.Dir(t))
	}
	x := b.Execute(t, inContext("state-python", "class Rich:\n  def _repr_html_(self): return '<b>x</b>'\n  def _repr_latex_(self): return '$x$'\nRich()"), nil)
	if !x.shown["text/html"] || !x.shown["text/latex"] {
		t.Errorf("a rich result: %+v", x)
	}
	x = b.Execute(t, inContext("state-python", "print('before')\n1/0"), nil)
	if x.failed == nil || x.failed.Name != "ZeroDivisionError" || x.end.Status != guestapi.EndError || x.stdout != "before\n" || x.end.StateLost {
		t.Errorf("an exception: %+v, %+v", x, x.failed)
	}
	if x := b.Execute(t, inContext("state-python", "n"), nil); x.result != "42" {
		t.Errorf("after it: %+v", x)
	}
}

// contextSyntax runs cells with IPython's syntax.
func contextSyntax(t *testing.T, b *Box) {
	const id = "syntax-python"
	for _, c := range []struct{ code, stdout string }{
		{"word = 'a b'\n!echo {word}; echo $word | tr a-z A-Z", "a b\nA B\n"},
		{"\n    lines = !printf 'c\\nd\\n'\n    print(lines.s)\n    ", "c d\n"},
		{"%%bash\nfor i in 1 2; do\n  echo $i\ndone", "1\n2\n"},
		{"%cd -q /\n!pwd", "/\n"},
	} {
		if x := b.Execute(t, inContext(id, c.code), nil); x.stdout != c.stdout || x.end.Status != guestapi.EndOK {
			t.Errorf("%q: %+v, %+v", c.code, x, x.failed)
		}
	}
	x := b.Execute(t, inContext(id, "%no_such_magic"), nil)
	if x.failed == nil || x.failed.Name != "UsageError" {
		t.Errorf("an unknown magic: %+v, %+v", x, x.failed)
	}
	slow := inContext(id, "!echo begun; sleep 600")
	slow.TimeoutMillis, slow.GraceMillis = 2000, 10_000
	if x := b.Execute(t, slow, nil); x.stdout != "begun\n" || !x.end.TimedOut || x.end.StateLost {
		t.Errorf("a command that timed out: %+v", x)
	}
	if x := b.Execute(t, inContext(id, "len(lines), _exit_code"), nil); x.result != "(2, 0)" {
		t.Errorf("after it: %+v", x)
	}
}

// contextStop ends runs by an interrupt, by a timeout and by closing the stream.
func contextStop(t *testing.T, b *Box) {
	const id = "stop-python"
	b.Execute(t, inContext(id, "import time\nkept = 1"), nil)
	slow := inContext(id, "print('begun', flush=True)\ntime.sleep(600)")
	slow.Tag = sandbox.NewRunID()
	x := b.Execute(t, slow, func(ev *guestapi.Event) {
		if ev.Data == nil {
			return
		}
		if err := b.Client.InterruptExecution(step(t), slow.Tag, &guestapi.InterruptRequest{GraceMillis: 10_000}); err != nil {
			t.Errorf("interrupt: %v", err)
		}
	})
	if !x.end.Stopped || x.end.StateLost || x.end.Status == guestapi.EndOK {
		t.Errorf("interrupted: %+v", x.end)
	}
	slow.Tag, slow.TimeoutMillis, slow.GraceMillis = "", 300, 10_000
	if x := b.Execute(t, slow, nil); !x.end.TimedOut || x.end.StateLost {
		t.Errorf("timed out: %+v", x.end)
	}
	if x := b.Execute(t, inContext(id, "kept"), nil); x.result != "1" {
		t.Errorf("after both: %+v", x)
	}
	// A program that ignores the interrupt.
	stubborn := inContext(id, "while True:\n  try: time.sleep(600)\n  except KeyboardInterrupt: pass")
	stubborn.TimeoutMillis, stubborn.GraceMillis = 2000, 500 // it must first reach its loop
	if x := b.Execute(t, stubborn, nil); !x.end.TimedOut || !x.end.StateLost {
		t.Errorf("a stubborn one: %+v", x.end)
	}
	if x := b.Execute(t, inContext(id, "'kept' in globals()"), nil); x.result != "False" {
		t.Errorf("after it: %+v", x)
	}
	// A program whose client closes the stream.
	ctx, cancel := context.WithCancel(step(t))
	stream, err := b.Client.Execute(ctx, "", inContext(id, "import time\nafter = 1\nprint('begun', flush=True)\ntime.sleep(600)"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for {
		ev, err := stream.Next()
		if err != nil {
			t.Fatal(err)
		}
		if ev.Data != nil {
			break
		}
	}
	cancel()
	stream.Close()
	began := time.Now()
	if x := b.Execute(t, inContext(id, "after"), nil); x.result != "1" {
		t.Errorf("after one whose caller left: %+v", x)
	}
	if d := time.Since(began); d > stepTime/2 {
		t.Errorf("that took %v", d)
	}
}

func contextSeveral(t *testing.T, b *Box) {
	b.Execute(t, inContext("a-python", "who = 'a'"), nil)
	b.Execute(t, inContext("b-python", "who = 'b'"), nil)
	if x := b.Execute(t, inContext("a-python", "who"), nil); !strings.Contains(x.result, "a") {
		t.Errorf("the first context has %+v", x)
	}
	names := func() (all []string) {
		t.Helper()
		list, err := b.Client.Contexts(step(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list {
			if c.ID == "a-python" || c.ID == "b-python" {
				all = append(all, c.ID+" "+c.Language)
			}
		}
		return all
	}
	if got := strings.Join(names(), ", "); got != "a-python python, b-python python" {
		t.Errorf("the list has %q", got)
	}
	if err := b.Client.RestartContext(step(t), "a-python"); err != nil {
		t.Errorf("restart: %v", err)
	}
	if x := b.Execute(t, inContext("a-python", "'who' in globals()"), nil); x.result != "False" {
		t.Errorf("restarted, it has %+v", x)
	}
	if err := b.Client.RemoveContext(step(t), "b-python"); err != nil {
		t.Errorf("remove: %v", err)
	}
	if got := names(); len(got) != 1 {
		t.Errorf("then the list has %q", got)
	}
	for what, err := range map[string]error{
		"restart": b.Client.RestartContext(step(t), "b-python"), "remove": b.Client.RemoveContext(step(t), "b-python"),
	} {
		if !errors.Is(err, sandbox.NotFound) {
			t.Errorf("%s one that is not there: %v", what, err)
		}
	}
	if _, err := b.Client.Execute(step(t), "", &guestapi.ExecuteRequest{ContextID: "b-python", Code: "1"}, nil); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("run in one that is not there: %v", err)
	}
}
