package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver/fake"
	"github.com/glovebox-dev/glovebox/internal/engine/runlog"
	"github.com/glovebox-dev/glovebox/internal/interpreter"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// needInterpreter skips the test if a program is not where guests look for it,
// and fails it if GLOVEBOX_REQUIRE names the program.
func needInterpreter(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath("/usr/bin/" + program); err != nil {
		if slices.Contains(strings.Split(os.Getenv("GLOVEBOX_REQUIRE"), ","), program) {
			t.Fatalf("%s is required and missing", program)
		}
		t.Skipf("%s is not here", program)
	}
}

// mainResult returns the text of a run's last expression.
func (e *Engine) mainResult(t *testing.T, id string) string {
	t.Helper()
	for _, r := range e.mustResults(t, id).Results {
		if r.Main {
			var s string
			if err := json.Unmarshal(r.Data["text/plain"], &s); err != nil {
				t.Fatal(err)
			}
			return s
		}
	}
	return ""
}

// TestIPythonOnFake selects another kernel of a language by its runner.
func TestIPythonOnFake(t *testing.T) {
	needInterpreter(t, "python3")
	if err := exec.Command("/usr/bin/python3", "-c", "import IPython").Run(); err != nil {
		if slices.Contains(strings.Split(os.Getenv("GLOVEBOX_REQUIRE"), ","), "ipython") {
			t.Fatalf("ipython is required and missing: %v", err)
		}
		t.Skipf("no IPython: %v", err)
	}
	e := openFake(t, t.TempDir(), func(o *Options, _ *fake.Options) {
		var err error
		o.Runners, err = interpreter.Runners().Override([]byte("language: python\nextension: py\nkernel: ipython\nvariants: [{command: [python3, '{file}']}]\n"))
		if err != nil {
			t.Fatal(err)
		}
	})
	s := e.mustCreate(t, sandbox.CreateRequest{})
	r := e.mustWait(t, e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Context: sandbox.DefaultContext, Code: "get_ipython().__class__.__mro__[1].__name__"}).ID)
	checkVerdict(t, r, sandbox.OK, "")
	if got := e.mainResult(t, r.ID); got != "'InteractiveShell'" || r.Context.Language != "python" {
		t.Errorf("%s, %+v", got, r.Context)
	}
	list, err := e.Contexts(t.Context(), alice, s.ID)
	if err != nil || len(list) != 1 || list[0].Name != sandbox.DefaultContext || list[0].Language != "python" {
		t.Errorf("contexts are %+v, %v", list, err)
	}
	if err := e.RemoveContext(t.Context(), alice, s.ID, sandbox.DefaultContext, "python"); err != nil {
		t.Error(err)
	}
	// -S leaves out the packages of the system.
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "python3"), []byte("#!/bin/sh\nexec /usr/bin/python3 -S \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	s = e.mustCreate(t, sandbox.CreateRequest{Env: map[string]string{"PATH": dir}})
	_, err = e.Start(t.Context(), alice, sandbox.RunRequest{SandboxID: s.ID, Context: sandbox.DefaultContext, Code: "1"})
	if hint := sandbox.HintOf(err); !errors.Is(err, sandbox.Unsupported) || !strings.Contains(hint, "apt-get install python3-ipython") || !strings.Contains(hint, "remove kernel: ipython from the runner of python") {
		t.Errorf("a sandbox without IPython: %v, hint %q", err, hint)
	}
}

// TestContextsOnFake runs code in live interpreters of real guests.
func TestContextsOnFake(t *testing.T) {
	needInterpreter(t, "python3")
	e := openFake(t, t.TempDir(), nil)
	s := e.mustCreate(t, sandbox.CreateRequest{Env: map[string]string{"FROM": "sandbox"}})
	run := func(req sandbox.RunRequest) sandbox.Run {
		t.Helper()
		req.SandboxID = s.ID
		if req.Context == "" {
			req.Context = sandbox.DefaultContext
		}
		return e.mustWait(t, e.mustStart(t, req).ID)
	}
	checkVerdict(t, run(sandbox.RunRequest{Code: "import os\nn = 1\nprint(os.environ['FROM'], os.environ.get('ONCE'))", Env: map[string]string{"ONCE": "x"}}), sandbox.OK, "")
	r := run(sandbox.RunRequest{Code: "n += 1\nos.environ.get('ONCE'), n"})
	checkVerdict(t, r, sandbox.OK, "")
	if got := e.mainResult(t, r.ID); got != "(None, 2)" || r.Context.Count != 2 {
		t.Errorf("%s, %+v", got, r.Context)
	}
	r = run(sandbox.RunRequest{Code: "n", Context: "other"})
	checkVerdict(t, r, sandbox.Failed, "NameError: name 'n' is not defined, in line 1; the context keeps its variables")
	r = run(sandbox.RunRequest{Code: "input('name? ')"})
	checkVerdict(t, r, sandbox.Failed, "nobody can answer")
	r = run(sandbox.RunRequest{Code: "import time\ntime.sleep(60)", Timeout: 200 * time.Millisecond})
	checkVerdict(t, r, sandbox.Timeout, "was interrupted; the context keeps")
	r = run(sandbox.RunRequest{Code: "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(60)", Timeout: 200 * time.Millisecond, Context: "stubborn"})
	checkVerdict(t, r, sandbox.Timeout, "was killed; state lost")
	r = run(sandbox.RunRequest{Code: "1", Context: "stubborn"})
	checkVerdict(t, r, sandbox.OK, "")
	if r.Context.Count != 1 || !strings.Contains(r.Context.Notice, "state lost; started fresh") {
		t.Errorf("after it: %+v", r.Context)
	}
	r = run(sandbox.RunRequest{Code: "os._exit(0)"})
	checkVerdict(t, r, sandbox.Killed, "exited (exit status 0); state lost")
	r = run(sandbox.RunRequest{Code: "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"})
	checkVerdict(t, r, sandbox.Killed, "signal (killed); state lost")
	r = run(sandbox.RunRequest{Code: "f() { echo hi $1; }; cd /tmp; exit 0", Language: "bash"})
	checkVerdict(t, r, sandbox.OK, "")
	r = run(sandbox.RunRequest{Code: "f you; pwd", Language: "bash"})
	checkVerdict(t, r, sandbox.OK, "")
	if out, err := e.Output(t.Context(), alice, r.ID, 0); err != nil || out.Stdout != "hi you\n/tmp\n" {
		t.Errorf("a shell that was left: %+v, %v", out, err)
	}
	list, err := e.Contexts(t.Context(), alice, s.ID)
	var names []string
	for _, c := range list {
		names = append(names, c.Language+" "+c.Name)
	}
	slices.Sort(names)
	if err != nil || strings.Join(names, ", ") != "bash default, python default, python other, python stubborn" {
		t.Errorf("contexts %q, %v", names, err)
	}
	// A run that waits for its turn is there at once, and is stopped alone.
	first := e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Context: "q", Code: "import time\nn = 0\nprint('begun')\ntime.sleep(60)"})
	second := e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Context: "q", Code: "n = 7"})
	third := e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Context: "q", Code: "n"})
	stopped, err := e.StopRun(t.Context(), alice, second.ID)
	if err != nil {
		t.Fatal(err)
	}
	checkVerdict(t, stopped, sandbox.Cancelled, "keeps its variables")
	if stopped, err = e.StopRun(t.Context(), alice, first.ID); err != nil {
		t.Fatal(err)
	}
	checkVerdict(t, stopped, sandbox.Cancelled, "keeps its variables")
	checkVerdict(t, e.mustWait(t, third.ID), sandbox.OK, "")
	if got := e.mainResult(t, third.ID); got != "0" {
		t.Errorf("n is %s", got)
	}
	if err := e.Stop(t.Context(), alice, s.ID); err != nil {
		t.Fatal(err)
	}
}

// TestLargeResultsOnFake has several contexts of a sandbox show results near the
// bound at once. They share the room for one, and all are kept.
func TestLargeResultsOnFake(t *testing.T) {
	needInterpreter(t, "python3")
	const size = 8 << 20 // six times that with escapes
	e := openFake(t, t.TempDir(), nil)
	s := e.mustCreate(t, sandbox.CreateRequest{})
	var runs []sandbox.Run
	for _, name := range []string{"a", "b", "c"} {
		code := fmt.Sprintf("class Large:\n  def _repr_svg_(self): return '<' * %d\ndisplay(Large())\n'shown'", size)
		runs = append(runs, e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Context: name, Code: code, Timeout: 5 * time.Minute}))
	}
	for _, r := range runs {
		checkVerdict(t, e.mustWait(t, r.ID), sandbox.OK, "")
		res := e.mustResults(t, r.ID)
		if len(res.Results) != 2 || len(res.Results[0].Data["image/svg+xml"]) != size+2 || e.mainResult(t, r.ID) != "'shown'" {
			t.Errorf("%d results, %d omitted", len(res.Results), res.Omitted)
		}
	}
}

// TestForgedErrorsOnFake has a cell find the key of its interpreter, and forge
// exceptions with it.
func TestForgedErrorsOnFake(t *testing.T) {
	needInterpreter(t, "python3")
	e := openFake(t, t.TempDir(), nil)
	r := e.mustWait(t, e.mustStart(t, inContext(`
import sys, os, json
f = sys._getframe()
while f and f.f_globals.get("__name__") != "glovebox_kernel": f = f.f_back
k = f.f_globals["kernel"]
data = json.dumps({"ev": "error", "id": k.run, "name": "E", "value": "v", "traceback": "t\n", "line": 1, "text": "<" * 65536}).encode()
P = 60000
for _ in range(200):
    for i in range(0, len(data), P): os.write(k.events, k.key + (b"." if i + P >= len(data) else b"+") + data[i:i+P])
"sent"`)).ID)
	checkVerdict(t, r, sandbox.OK, "")
	info, err := e.logs.Stat(r.SandboxID + "/" + r.ID + ".results")
	if err != nil || info.Size() > 2*runlog.MaxErrorText {
		t.Errorf("results take %d bytes, %v", info.Size(), err)
	}
	if res := e.mustResults(t, r.ID); res.Error == nil || e.mainResult(t, r.ID) != "'sent'" {
		t.Errorf("error %v, %d results", res.Error != nil, len(res.Results))
	}
	if out, err := e.Output(t.Context(), alice, r.ID, 0); err != nil || out.Stderr != strings.Repeat("t\n", 200) {
		t.Errorf("%d bytes of output, %v", len(out.Stderr), err)
	}
}

// TestContextOutlivesTheServer restarts the server during a run that asks.
func TestContextOutlivesTheServer(t *testing.T) {
	needInterpreter(t, "python3")
	dir := t.TempDir()
	set := func(o *Options, _ *fake.Options) { o.Detached = true }
	old := openFake(t, dir, set)
	kept := old.mustWait(t, old.mustStart(t, inContext("n = 41")).ID)
	req := inContext("print('before', flush=True)\nn += int(input())\nprint('after')\nn")
	req.SandboxID, req.KeepStdin = kept.SandboxID, true
	r := old.mustStart(t, req)
	for {
		if run, _ := old.runs.Find(r.ID).View(); run.Input != nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := old.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	e := openFake(t, dir, set)
	if err := e.SendInput(t.Context(), alice, r.ID, []byte("1\n"), false); err != nil {
		t.Fatal(err)
	}
	checkVerdict(t, e.mustWait(t, r.ID), sandbox.OK, "")
	out, err := e.Output(t.Context(), alice, r.ID, 0)
	if got := e.mainResult(t, r.ID); err != nil || out.Stdout != "before\nafter\n" || got != "42" {
		t.Errorf("%+v, %v, %s", out, err, got)
	}
	if err := e.Stop(t.Context(), alice, r.SandboxID); err != nil {
		t.Fatal(err)
	}
}

// TestLanguages asks a real guest what it has.
func TestLanguages(t *testing.T) {
	needInterpreter(t, "python3")
	e := openFake(t, t.TempDir(), nil)
	list, id, err := e.Languages(t.Context(), alice, "", sandbox.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]sandbox.Language{}
	for _, l := range list {
		byName[l.Name] = l
		if (l.Program == "") == (l.Missing == "") {
			t.Errorf("neither there nor missing: %+v", l)
		}
	}
	if l := byName["python"]; l.Program != "/usr/bin/python3" || !strings.HasPrefix(l.Version, "3.") || !l.Contexts || l.Installer != "pip" {
		t.Errorf("%+v", l)
	}
	if l := byName["bash"]; l.Version == "" {
		t.Errorf("%+v", l)
	}
	if len(list) != len(e.opts.Runners) {
		t.Errorf("%d of %d languages", len(list), len(e.opts.Runners))
	}
	again, same, err := e.Languages(t.Context(), alice, id, sandbox.CreateRequest{})
	if err != nil || same != id || len(again) != len(list) {
		t.Errorf("%d, %s, %v", len(again), same, err)
	}
	if _, _, err := e.Languages(t.Context(), "bob", id, sandbox.CreateRequest{}); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("another principal: %v", err)
	}
}
