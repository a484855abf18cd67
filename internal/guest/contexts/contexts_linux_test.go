package contexts_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// executed is what came of a run in a context.
type executed struct {
	t              *testing.T
	kinds          []string // of events, neighbours of one kind as one
	stdout, stderr string
	late, notices  string
	lateResults    int
	prompts        []string
	results        []*sandbox.Result
	err            *sandbox.RunError
	errors         int
	count          int
	end            *guestapi.End
}

// main returns the text of the last expression's value.
func (x *executed) main() string {
	for _, r := range slices.Backward(x.results) {
		if r.Main {
			var s string
			if err := json.Unmarshal(r.Data["text/plain"], &s); err != nil {
				x.t.Fatal(err)
			}
			return s
		}
	}
	return ""
}

// eval starts a run and returns its stream.
func (h *host) eval(req *guestapi.ExecuteRequest) *guestapi.Events {
	h.T.Helper()
	x, err := h.Execute(h.T.Context(), "", req, nil)
	if err != nil {
		h.T.Fatal(err)
	}
	h.T.Cleanup(func() { x.Close() })
	return x
}

// kindOf names the kind of an event.
func kindOf(ev *guestapi.Event) string {
	switch {
	case ev.Late != nil:
		return "late"
	case ev.Data != nil && ev.Data.Stderr != nil:
		return "stderr"
	case ev.Data != nil:
		return "stdout"
	case ev.Notice != "":
		return "notice"
	case ev.Turn != nil:
		return "turn"
	case ev.Result != nil:
		return "result"
	case ev.Error != nil:
		return "error"
	case ev.Input != nil:
		return "input"
	}
	return "end"
}

// gather reads a run to its end.
func gather(t *testing.T, x *guestapi.Events, input func(prompt string)) *executed {
	t.Helper()
	r := &executed{t: t}
	var stdout, stderr strings.Builder
	for {
		ev, err := x.Next()
		if err != nil {
			t.Fatalf("next event: %v, after %+v", err, r)
		}
		if kind, n := kindOf(ev), len(r.kinds); n == 0 || r.kinds[n-1] != kind {
			r.kinds = append(r.kinds, kind)
		}
		switch {
		case ev.Late != nil && ev.Result != nil:
			r.lateResults++
		case ev.Late != nil:
			r.late += string(ev.Data.Stdout) + string(ev.Data.Stderr)
		case ev.Data != nil:
			stdout.Write(ev.Data.Stdout)
			stderr.Write(ev.Data.Stderr)
		case ev.Notice != "":
			r.notices += ev.Notice
		case ev.Turn != nil:
			r.count = ev.Turn.Count
		case ev.Result != nil:
			r.results = append(r.results, ev.Result)
		case ev.Error != nil:
			r.err = ev.Error
			r.errors++
		case ev.Input != nil:
			r.prompts = append(r.prompts, ev.Input.Prompt)
			if input != nil {
				input(ev.Input.Prompt)
			}
		case ev.End != nil:
			r.end, r.stdout, r.stderr = ev.End, stdout.String(), stderr.String()
			if _, err := x.Next(); err != io.EOF {
				t.Errorf("after the end: %v", err)
			}
			return r
		}
	}
}

// in runs code in the default context of a language.
func (h *host) in(language, code string) *executed {
	h.T.Helper()
	return gather(h.T.(*testing.T), h.eval(&guestapi.ExecuteRequest{Language: language, Code: code, TimeoutMillis: 60000}), nil)
}

// ends runs code and checks the status that it ends with.
func (h *host) ends(language, code string, status guestapi.EndStatus) *executed {
	h.T.Helper()
	r := h.in(language, code)
	if r.end.Status != status {
		h.T.Fatalf("%s %q ended as %+v (error %+v, stdout %.300q, stderr %.300q), want %s", language, code, r.end, r.err, r.stdout, r.stderr, status)
	}
	return r
}

// newEvalHost starts a guest for tests with these programs, which must be on
// the guest's own default PATH. GLOVEBOX_REQUIRE turns a skip into a failure.
func newEvalHost(t *testing.T, programs ...string) *host {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath("/usr/bin/" + p); err != nil {
			if slices.Contains(strings.Split(os.Getenv("GLOVEBOX_REQUIRE"), ","), p) {
				t.Fatalf("%s is required and missing", p)
			}
			t.Skipf("%s is not here", p)
		}
	}
	return newHost(t)
}

func same[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func TestContextPython(t *testing.T) {
	t.Parallel()
	h := newEvalHost(t, "python3")
	h.ends("python", "import os, sys\nx = 41", guestapi.EndOK)
	r := h.ends("python", "print('a'); display(x); print('b', file=sys.stderr); print('c')\nx + 1", guestapi.EndOK)
	same(t, "value", r.main(), "42")
	same(t, "stdout", r.stdout, "a\nc\n")
	same(t, "stderr", r.stderr, "b\n")
	same(t, "count", r.count, 2)
	same(t, "results", len(r.results), 2)
	if i, j := slices.Index(r.kinds, "stdout"), slices.Index(r.kinds, "result"); i > j || r.kinds[len(r.kinds)-2] != "result" {
		t.Errorf("order of events: %v", r.kinds)
	}
	if r.end.Detail.PeakMemoryBytes < 1<<20 {
		t.Errorf("peak memory is %d", r.end.Detail.PeakMemoryBytes)
	}
	r = h.ends("python", "def f():\n  1 // 0\nf()", guestapi.EndError)
	if r.err == nil || r.err.Name != "ZeroDivisionError" || r.err.Line != 2 || !strings.Contains(r.err.Traceback, "1 // 0") {
		t.Errorf("error is %+v", r.err)
	}
	r = h.ends("python", "sys.exit(3)", guestapi.EndExit)
	if r.end.ExitCode == nil || *r.end.ExitCode != 3 || r.end.StateLost {
		t.Errorf("end is %+v", r.end)
	}
	same(t, "state", h.ends("py", "x", guestapi.EndOK).main(), "41")
	for _, secret := range []string{"GUEST_SECRET", "GLOVEBOX_KEY"} {
		same(t, secret, h.ends("python", "os.environ.get('"+secret+"', 'none')", guestapi.EndOK).main(), "'none'")
	}
	want := "1000"
	if h.uid() != 0 {
		want = h.self()
	}
	same(t, "user", h.ends("python", "os.getuid()", guestapi.EndOK).main(), want)
}

func TestContextJavaScript(t *testing.T) {
	t.Parallel()
	contextJavaScript(t, newEvalHost(t, "node"))
}

// TestContextBun has contexts of JavaScript and TypeScript where there is only
// Bun, which must be as they are on Node.
func TestContextBun(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	env := map[string]string{"PATH": bunDir(t)}
	made, err := h.CreateContext(t.Context(), "", &guestapi.ContextRequest{ID: "default-javascript", Language: "javascript", Env: env})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(made.Version, "bun-") {
		t.Errorf("version is %q", made.Version)
	}
	contextJavaScript(t, h)
	if made, err = h.CreateContext(t.Context(), "", &guestapi.ContextRequest{ID: "ts", Language: "typescript", Env: env}); err != nil {
		t.Fatal(err)
	}
	run := func(code string, timeout int64) *executed {
		t.Helper()
		return gather(t, h.eval(&guestapi.ExecuteRequest{ContextID: made.ID, Code: code, TimeoutMillis: timeout, GraceMillis: 20000}), nil)
	}
	run("let n: number = 5", 60000)
	for _, code := range []string{"while (true);", "await new Promise<void>(() => {})"} {
		if r := run(code, 500); r.end.Status != guestapi.EndInterrupted || r.end.StateLost {
			t.Errorf("%q: end is %+v", code, r.end)
		}
	}
	same(t, "state", run("n as number", 60000).main(), "5")
}

// bunDir returns a directory that has GLOVEBOX_BUN and nothing else, where
// everybody can run it.
func bunDir(t *testing.T) string {
	t.Helper()
	bun := os.Getenv("GLOVEBOX_BUN")
	if bun == "" {
		t.Skip("GLOVEBOX_BUN names no Bun")
	}
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(bun)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "bun"), program, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func contextJavaScript(t *testing.T, h *host) {
	h.ends("javascript", "const x = 41", guestapi.EndOK)
	r := h.ends("js", "console.log('a'); display(1); console.log('b'); const y = await Promise.resolve(x + 1); y", guestapi.EndOK)
	same(t, "value", r.main(), "42")
	same(t, "order", strings.Join(r.kinds, " "), "turn stdout result stdout result end")
	r = h.ends("javascript", "\nthrow new TypeError('no')", guestapi.EndError)
	if r.err.Name != "TypeError" || r.err.Line != 2 {
		t.Errorf("error is %+v", r.err)
	}
	r = h.ends("javascript", "for (const fd of [0, 1, 2]) require('fs').closeSync(fd); 7", guestapi.EndOK)
	same(t, "value without descriptors", r.main(), "7")
	r = h.ends("javascript", "console.log('next'); require('child_process').execSync('echo child', { stdio: 'inherit' }); x", guestapi.EndOK)
	same(t, "output after closing", r.stdout, "next\nchild\n")
	same(t, "value", r.main(), "41")
	r = h.ends("javascript", "for (let fd = 3; fd < 5; fd++) { for (const s of ['.'.repeat(33) + '{\"ev\":\"end\",\"id\":6,\"status\":\"ok\"}', '']) try { require('fs').writeSync(fd, s) } catch {} } 'wrote'", guestapi.EndOK)
	same(t, "value behind junk", r.main(), "'wrote'")
	same(t, "next", h.ends("javascript", "x", guestapi.EndOK).main(), "41")
	h.ends("javascript", "(function f() { f() })()", guestapi.EndError)
	r = h.ends("javascript", "process.reallyExit(5)", guestapi.EndDied)
	if r.end.ExitCode == nil || *r.end.ExitCode != 5 || !r.end.StateLost {
		t.Errorf("end is %+v", r.end)
	}
	r = h.ends("javascript", "typeof x", guestapi.EndOK)
	same(t, "value", r.main(), "'undefined'")
	if !strings.Contains(r.notices, "state lost; started fresh") {
		t.Errorf("notices are %q", r.notices)
	}
}

// interpreterOf has the programs of languages.
var interpreterOf = map[string]string{"python": "python3", "javascript": "node", "bash": "bash"}

func TestContextShell(t *testing.T) {
	t.Parallel()
	h := newEvalHost(t, "bash")
	h.ends("bash", "x='a  b'; f() { echo \"f:$1\"; }; arr=(1 '2 3'); cd /tmp; export E=1; alias ll=ls; set -o pipefail", guestapi.EndOK)
	r := h.ends("bash", "f \"$x\"; echo ${arr[1]} $PWD $E; echo err >&2; set -o | grep pipefail", guestapi.EndOK)
	same(t, "stdout", r.stdout, "f:a  b\n2 3 /tmp 1\npipefail       \ton\n")
	same(t, "stderr", r.stderr, "err\n")
	r = h.ends("bash", "false", guestapi.EndExit)
	same(t, "code", *r.end.ExitCode, 1)
	r = h.ends("bash", "echo 'open", guestapi.EndExit)
	if !strings.Contains(r.stderr, "unexpected EOF") {
		t.Errorf("stderr is %q", r.stderr)
	}
	for _, code := range []string{"break; continue; return 2>/dev/null; true", "exec >/dev/null; exec 2>&1; exec <&-", "no_such_command; true"} {
		h.ends("bash", code, guestapi.EndOK)
	}
	// What ends a shell ends the run, and keeps what the shell knew.
	for code, want := range map[string]int{"exit 3": 3, "(exit 4); exit": 4, "set -e; false; echo no": 1, "f() { exit 5; }; f": 5} {
		r = h.ends("bash", code, guestapi.EndExit)
		if r.end.StateLost || *r.end.ExitCode != want || strings.Contains(r.stdout, "no") {
			t.Errorf("%s: end is %+v, stdout %q", code, r.end, r.stdout)
		}
		r = h.ends("bash", "set +e; f() { echo \"f:$1\"; }; echo \"$x ${arr[1]} $PWD $E\"; set -o | grep pipefail", guestapi.EndOK)
		same(t, "state after "+code, r.stdout, "a  b 2 3 /tmp 1\npipefail       \ton\n")
		same(t, "notices", r.notices, "")
	}
	h.ends("bash", "set -x; set -u; set -f", guestapi.EndOK)
	r = h.ends("bash", "echo *", guestapi.EndOK)
	same(t, "traced", r.stderr, "++ echo '*'\n")
	h.ends("bash", "set +x +u +f", guestapi.EndOK)
	r = gather(t, h.eval(&guestapi.ExecuteRequest{Language: "bash", Code: "echo \"$A$E\"", EnvVars: map[string]string{"A": "it's", "E": "2"}}), nil)
	same(t, "with environment", r.stdout, "it's2\n")
	same(t, "without", h.ends("bash", "echo \"${A-none}$E\"", guestapi.EndOK).stdout, "none1\n")
	r = h.ends("bash", "echo 'ls -l /proc/self/fd' | bash; for n in 240 241 242; do echo junk >&$n; done 2>/dev/null; echo here", guestapi.EndOK)
	if !strings.HasSuffix(r.stdout, "here\n") {
		t.Errorf("stdout is %q", r.stdout)
	}
	same(t, "after junk", h.ends("bash", "echo \"$x\"", guestapi.EndOK).stdout, "a  b\n")
	r = h.ends("bash", "exec sh -c 'echo replaced; exit 6'", guestapi.EndExit)
	if r.stdout != "replaced\n" || *r.end.ExitCode != 6 || !r.end.StateLost {
		t.Errorf("stdout %q, end %+v", r.stdout, r.end)
	}
	r = h.ends("bash", "echo \"[${x-}]\"", guestapi.EndOK)
	same(t, "fresh", r.stdout, "[]\n")
	if !strings.Contains(r.notices, "state lost") {
		t.Errorf("notices are %q", r.notices)
	}
}

func TestContextPOSIXShell(t *testing.T) {
	t.Parallel()
	h := newEvalHost(t, "dash")
	h.ends("sh", "x='a  b'; f() { echo \"f:$1\"; }; cd /tmp; export E=1", guestapi.EndOK)
	same(t, "state", h.ends("sh", "f \"$x\"; echo $PWD", guestapi.EndOK).stdout, "f:a  b\n/tmp\n")
	h.ends("sh", "echo 'open", guestapi.EndExit)
	same(t, "state after a syntax error", h.ends("sh", "echo \"$x\"", guestapi.EndOK).stdout, "a  b\n")
	h.ends("sh", "exit 3", guestapi.EndExit)
	same(t, "what outlives exit", h.ends("sh", "echo $PWD $E", guestapi.EndOK).stdout, "/tmp 1\n")
}

func TestContextInput(t *testing.T) {
	t.Parallel()
	h := newEvalHost(t, "python3", "node", "bash")
	for language, c := range map[string]struct{ refused, one, two, want string }{
		"python":     {"EOFError", "a = input('first? ')", "b = input('second? ')\n(a, b)", "('x', 'y')"},
		"javascript": {"Error", "a = await input('first? ')", "b = await input('second? '); [a, b]", "[ 'x', 'y' ]"},
	} {
		r := h.ends(language, c.one, guestapi.EndError)
		if r.err.Name != c.refused || !strings.Contains(r.err.Value, "nobody can answer") {
			t.Errorf("error is %+v", r.err)
		}
		ask := &guestapi.ExecuteRequest{Language: language, Code: c.one + "; " + c.two, Stdin: true}
		answers := []string{"x\n", "y"}
		r = gather(t, h.eval(ask), func(string) {
			in := &guestapi.InputRequest{Text: answers[0], EOF: len(answers) == 1}
			answers = answers[1:]
			if err := h.ContextInput(t.Context(), "default-"+language, in); err != nil {
				t.Error(err)
			}
		})
		same(t, "answers", r.main(), c.want)
		same(t, "prompts", strings.Join(r.prompts, "|"), "first? |second? ")
	}
	if err := h.ContextInput(t.Context(), "default-python", &guestapi.InputRequest{Text: "z"}); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("input without a run gave %v", err)
	}
	x := h.eval(&guestapi.ExecuteRequest{Language: "bash", Code: "read line; echo \"got $line\"", Stdin: true})
	if err := h.ContextInput(t.Context(), "default-bash", &guestapi.InputRequest{Text: "hello\n"}); err != nil {
		t.Error(err)
	}
	same(t, "shell", gather(t, x, nil).stdout, "got hello\n")
	r := h.ends("bash", "read line; echo \"none:$line\"", guestapi.EndOK)
	same(t, "shell without input", r.stdout, "none:\n")
}

func TestContextInterrupt(t *testing.T) {
	t.Parallel()
	h := newEvalHost(t, "python3", "node", "bash")
	for _, c := range []struct{ language, set, loop, get, want string }{
		{"python", "x = 5", "while True: pass", "print(x)", "5\n"},
		{"python", "x = 6", "import os; os.system('sleep 60')\nwhile True: pass", "print(x)", "6\n"},
		{"javascript", "let x = 5", "while (true);", "console.log(x)", "5\n"},
		{"javascript", "x = 6", "await new Promise(() => {})", "console.log(x)", "6\n"},
		{"bash", "x=5; f() { echo $x; }", "while :; do :; done", "f", "5\n"},
		{"bash", "x=6", "sleep 60; echo no", "f", "6\n"},
	} {
		h.ends(c.language, c.set, guestapi.EndOK)
		r := gather(t, h.eval(&guestapi.ExecuteRequest{Language: c.language, Code: c.loop, TimeoutMillis: 500, GraceMillis: 20000}), nil)
		if r.end.Status != guestapi.EndInterrupted || !r.end.TimedOut || r.end.StateLost {
			t.Errorf("%s %q: end is %+v", c.language, c.loop, r.end)
		}
		same(t, "state of "+c.language, h.ends(c.language, c.get, guestapi.EndOK).stdout, c.want)
	}
	// What does not listen is killed, with all that it started.
	r := gather(t, h.eval(&guestapi.ExecuteRequest{
		Language: "python", Code: "import subprocess, time\nsubprocess.Popen(['setsid', 'sleep', '61'])\nwhile True:\n  try: time.sleep(9)\n  except KeyboardInterrupt: pass",
		TimeoutMillis: 300, GraceMillis: 300,
	}), nil)
	if r.end.Status != guestapi.EndDied || !r.end.TimedOut || !r.end.StateLost || !r.end.Killed {
		t.Errorf("end is %+v", r.end)
	}
	for _, p := range h.Descendants() {
		if strings.Contains(h.environOf(p.PID), "sleep\x0061") {
			t.Error("a process of the killed context lives")
		}
	}
	r = h.ends("python", "'x' in globals()", guestapi.EndOK)
	same(t, "variables", r.main(), "False")
	if !strings.Contains(r.notices, "state lost; started fresh") {
		t.Errorf("notices are %q", r.notices)
	}
	same(t, "notices later", h.ends("python", "1", guestapi.EndOK).notices, "")
	// By request.
	x := h.eval(&guestapi.ExecuteRequest{Language: "python", Code: "print('on')\nwhile True: pass"})
	for {
		ev, err := x.Next()
		if err != nil {
			t.Fatal(err)
		}
		if ev.Data != nil {
			break
		}
	}
	if err := h.InterruptContext(t.Context(), "default-python", &guestapi.InterruptRequest{}); err != nil {
		t.Fatal(err)
	}
	if r := gather(t, x, nil); r.end.Status != guestapi.EndInterrupted || !r.end.Stopped {
		t.Errorf("end is %+v", r.end)
	}
	if err := h.InterruptContext(t.Context(), "default-python", &guestapi.InterruptRequest{}); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("interrupt without a run gave %v", err)
	}
	// A caller that leaves.
	ctx, cancel := context.WithCancel(t.Context())
	left, err := h.Execute(ctx, "", &guestapi.ExecuteRequest{Language: "python", Code: "kept = 1\nwhile True: pass"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := left.Next(); err != nil {
		t.Fatal(err)
	}
	cancel()
	same(t, "state after the caller left", h.ends("python", "kept", guestapi.EndOK).main(), "1")
}

func TestContextTable(t *testing.T) {
	t.Parallel()
	h := newEvalHost(t, "python3", "bash")
	ctx := t.Context()
	a, err := h.CreateContext(ctx, "", &guestapi.ContextRequest{Language: "python", Cwd: "/tmp", ID: "a", Env: map[string]string{"V": "1"}, Prepare: []string{"decimal"}})
	if err != nil {
		t.Fatal(err)
	}
	if a.ID != "a" || a.Language != "python" || a.Cwd != "/tmp" || a.PID == 0 || !strings.HasPrefix(a.Version, "3.") {
		t.Errorf("context is %+v", a)
	}
	b, err := h.CreateContext(ctx, "", &guestapi.ContextRequest{Language: "shell"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		req  guestapi.ContextRequest
		want sandbox.Kind
	}{
		{guestapi.ContextRequest{ID: "a"}, sandbox.Conflict},
		{guestapi.ContextRequest{Language: "cobol"}, sandbox.Invalid},
		{guestapi.ContextRequest{ID: "x/y"}, sandbox.Invalid},
		{guestapi.ContextRequest{Cwd: "/no/such"}, sandbox.NotFound},
		{guestapi.ContextRequest{Env: map[string]string{"PATH": "/nowhere"}}, sandbox.NotFound},
		{guestapi.ContextRequest{Env: map[string]string{"A=B": "c"}}, sandbox.Invalid},
	} {
		if _, err := h.CreateContext(ctx, "", &c.req); sandbox.KindOf(err) != c.want {
			t.Errorf("%+v gave %v, want %s", c.req, err, c.want)
		}
	}
	run := func(id, code string) *executed {
		t.Helper()
		return gather(t, h.eval(&guestapi.ExecuteRequest{ContextID: id, Code: code}), nil)
	}
	same(t, "context a", run("a", "import os, sys\nx = 1\nos.getcwd() + os.environ['V'] + str('decimal' in sys.modules)").main(), "'/tmp1True'")
	same(t, "context b", run(b.ID, "x=2; echo $x").stdout, "2\n")
	same(t, "made by a run", gather(t, h.eval(&guestapi.ExecuteRequest{ContextID: "c", Language: "python", Create: true, Code: "1"}), nil).main(), "1")
	for _, req := range []*guestapi.ExecuteRequest{{ContextID: "none", Code: "1"}, {ContextID: "a", Language: "bash", Code: "1"}} {
		if _, err := h.Execute(ctx, "", req, nil); err == nil {
			t.Errorf("%+v was taken", req)
		}
	}
	list, err := h.Contexts(ctx)
	if err != nil || len(list) != 3 {
		t.Fatalf("contexts are %+v, %v", list, err)
	}
	if err := h.RestartContext(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	r := run("a", "'x' in globals()")
	if r.main() != "False" || r.notices != "" || r.count != 1 {
		t.Errorf("after a restart: %q, notices %q, count %d", r.main(), r.notices, r.count)
	}
	x := h.eval(&guestapi.ExecuteRequest{ContextID: "a", Code: "while True: print('x' * 1000)"})
	if err := h.RemoveContext(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if r := gather(t, x, nil); r.end.Status != guestapi.EndDied || r.end.Cause != "the context was removed" {
		t.Errorf("end is %+v", r.end)
	}
	if err := h.RemoveContext(ctx, "a"); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("second remove gave %v", err)
	}
	if _, err := h.Execute(ctx, "", &guestapi.ExecuteRequest{ContextID: "a", Code: "1"}, nil); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("run in a removed context gave %v", err)
	}
}

func TestContextRunsTakeTurns(t *testing.T) {
	t.Parallel()
	h := newEvalHost(t, "python3")
	h.ends("python", "n = 0", guestapi.EndOK)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			x, err := h.Execute(t.Context(), "", &guestapi.ExecuteRequest{Language: "python", Code: "import time\nm = n; time.sleep(0.01); n = m + 1"}, nil)
			if err != nil {
				t.Error(err)
				return
			}
			for err == nil {
				_, err = x.Next()
			}
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	same(t, "n", h.ends("python", "n", guestapi.EndOK).main(), "8")
}

func TestContextMuchOutput(t *testing.T) {
	t.Parallel()
	h := newEvalHost(t, "python3")
	for _, code := range []string{"print('x' * 9_999_999)", "for i in range(100_000): print('é' * 49 + 'x')", "import os\nfor i in range(100): os.write(1, b'x' * 100_000)"} {
		r := h.ends("python", code, guestapi.EndOK)
		if n := len(r.stdout); n != 10_000_000 {
			t.Errorf("%s: %d bytes", code, n)
		}
		if strings.Contains(r.stdout, "\uFFFD") {
			t.Errorf("%s: a character was split", code)
		}
	}
	// A caller that does not read holds the run back, and memory is bounded.
	x := h.eval(&guestapi.ExecuteRequest{Language: "python", Code: "for i in range(100_000): print('x' * 999)"})
	before := h.Memory()
	time.Sleep(500 * time.Millisecond)
	if grown := h.Memory() - before; grown > 32<<20 {
		t.Errorf("the guest grew by %d bytes", grown)
	}
	same(t, "output", len(gather(t, x, nil).stdout), 100_000_000)
}
