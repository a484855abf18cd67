package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/engine/run"
	"github.com/glovebox-dev/glovebox/internal/engine/runlog"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func inContext(code string) sandbox.RunRequest {
	return sandbox.RunRequest{Code: code, Context: sandbox.DefaultContext}
}

func (e *Engine) mustResults(tb testing.TB, id string) sandbox.Results {
	tb.Helper()
	r, err := e.Results(context.Background(), alice, id)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// TestContextRuns checks what of a run in a context is kept, and how its end
// is judged.
func TestContextRuns(t *testing.T) {
	for _, c := range []struct {
		name, script   string
		verdict        sandbox.VerdictCode
		cause, next    string
		stdout, stderr string
		results        int
		lost           bool
	}{
		{name: "Nothing", verdict: sandbox.OK},
		{name: "Output", script: "out a\nerr b\nvalue c", verdict: sandbox.OK, stdout: "a\n", stderr: "b\n", results: 1},
		{name: "Exception", script: "out a\nraise wrong", verdict: sandbox.Failed, cause: "Error: wrong, in line 2; the context keeps its variables", stdout: "a\n", stderr: "traceback of wrong\n"},
		{name: "NobodyAnswers", script: "raise nobody can answer", verdict: sandbox.Failed, cause: "nobody", next: "wait_seconds", stderr: "traceback of nobody can answer\n"},
		{name: "Exit", script: "die", verdict: sandbox.Killed, cause: "the interpreter exited; state lost", lost: true},
		{name: "Killed", script: "kill", verdict: sandbox.Killed, cause: "SIGKILL; state lost: the next run in the context starts fresh", lost: true},
		{name: "OutOfMemory", script: "kill memory", verdict: sandbox.OutOfMemory, cause: "512 MiB of memory; state lost", next: "more memory", lost: true},
		{name: "Timeout", script: "wait", verdict: sandbox.Timeout, cause: "timeout of 2s and was interrupted; the context keeps", next: "longer"},
		{name: "TimeoutKills", script: "hang", verdict: sandbox.Timeout, cause: "was killed; state lost", next: "longer", lost: true},
		{name: "Late", script: "late a\nlate b\nout c", verdict: sandbox.OK, stdout: "[output of an earlier run in this context]\na\nb\nc\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := openWorld(t, newWorld(), t.TempDir(), nil)
				req := inContext(c.script + "\n")
				req.Timeout = 2 * time.Second
				r := e.mustWait(t, e.mustStart(t, req).ID)
				checkVerdict(t, r, c.verdict, c.cause)
				if !strings.Contains(r.Verdict.NextStep, c.next) {
					t.Errorf("next step %q, want %q", r.Verdict.NextStep, c.next)
				}
				if r.Context == nil || r.Context.Name != "default" || r.Context.Language != "python" || r.Context.Count != 1 || r.Context.StateLost != c.lost {
					t.Errorf("context %+v", r.Context)
				}
				out, err := e.Output(t.Context(), alice, r.ID, 0)
				if err != nil || out.Stdout != c.stdout || out.Stderr != c.stderr {
					t.Errorf("output %+v, %v", out, err)
				}
				res := e.mustResults(t, r.ID)
				if len(res.Results) != c.results {
					t.Errorf("results %+v", res)
				}
				if strings.HasPrefix(c.script, "raise") && (res.Error == nil || res.Error.Line != 2) {
					t.Errorf("error %+v", res.Error)
				}
			})
		})
	}
}

// TestFreshSandboxKeepsNothing misses a file in the first run of a sandbox. The
// verdict must not suggest that variables of an earlier sandbox are there.
func TestFreshSandboxKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := openWorld(t, newWorld(), t.TempDir(), nil)
		const keeps = "; the context keeps its variables"
		for script, fresh := range map[string]string{
			"raise ENOENT: no such file, open 'x'":           "Error: ENOENT: no such file, open 'x', in line 2",
			"raise wrong":                                    "Error: wrong, in line 2" + keeps,
			"err cat: x: No such file or directory\nleave 1": "it exited with status 1",
			"err x\nleave 1":                                 "it exited with status 1" + keeps,
		} {
			first := e.mustWait(t, e.mustStart(t, inContext(script)).ID)
			if first.Verdict.Cause != fresh {
				t.Errorf("%s in a new sandbox: cause %q, want %q", script, first.Verdict.Cause, fresh)
			}
			req := inContext(script)
			req.SandboxID = first.SandboxID
			again := e.mustWait(t, e.mustStart(t, req).ID)
			if want := strings.TrimSuffix(fresh, keeps) + keeps; again.Verdict.Cause != want {
				t.Errorf("%s in the same sandbox: cause %q, want %q", script, again.Verdict.Cause, want)
			}
		}
	})
}

func TestResultsAreInTheirPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := openWorld(t, newWorld(), t.TempDir(), nil)
		r := e.mustWait(t, e.mustStart(t, inContext("out 1\nshow a\nerr 22\nout 3\nvalue b")).ID)
		res := e.mustResults(t, r.ID).Results
		if len(res) != 2 || res[0].Stdout != 2 || res[0].Stderr != 0 || res[0].Main || res[1].Stdout != 4 || res[1].Stderr != 3 || !res[1].Main {
			t.Fatalf("%+v", res)
		}
		if d := res[0].Data; len(d) != 1 || string(d["text/plain"]) != `"a"` {
			t.Errorf("what is no type, or no text, is kept: %s", d)
		}
		if _, err := e.Results(t.Context(), "bob", r.ID); !errors.Is(err, sandbox.NotFound) {
			t.Errorf("another principal: %v", err)
		}
		plain := e.mustWait(t, e.mustStart(t, sandbox.RunRequest{Argv: []string{"print", "a"}}).ID)
		if res := e.mustResults(t, plain.ID); len(res.Results) != 0 || plain.Context != nil {
			t.Errorf("a program of its own: %+v, %+v", res, plain.Context)
		}
	})
}

func TestResultsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := openWorld(t, newWorld(), t.TempDir(), nil)
		for name, c := range map[string]struct {
			script        string
			kept, omitted int
		}{
			"Many":  {strings.Repeat("show a\n", runlog.MaxResults+7), runlog.MaxResults, 7},
			"Large": {strings.Repeat("show "+strings.Repeat("x", 1<<20)+"\n", 7), 7, 0},
		} {
			r := e.mustWait(t, e.mustStart(t, inContext(c.script)).ID)
			res := e.mustResults(t, r.ID)
			if len(res.Results) != c.kept || res.Omitted != c.omitted {
				t.Errorf("%s: %d results, %d omitted", name, len(res.Results), res.Omitted)
			}
			rec, err := e.store.Run(t.Context(), r.ID)
			if err != nil || rec.KeptBytes == 0 {
				t.Errorf("%s: %d bytes are counted, %v", name, rec.KeptBytes, err)
			}
		}
	})
}

// TestErrorsAreBounded has a guest that tells of exceptions without end. One of
// them is kept, as it was written.
func TestErrorsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := openWorld(t, newWorld(), t.TempDir(), nil)
		r := e.mustWait(t, e.mustStart(t, inContext("show a\nfail 200\nraise end")).ID)
		checkVerdict(t, r, sandbox.Failed, "Error: 0")
		info, err := e.logs.Stat(r.SandboxID + "/" + r.ID + ".results")
		if err != nil {
			t.Fatal(err)
		}
		if most := int64(runlog.MaxErrorText + 4096); info.Size() > most {
			t.Errorf("201 exceptions take %d bytes, want at most %d", info.Size(), most)
		}
		res := e.mustResults(t, r.ID)
		if res.Error == nil || res.Error.Value != "0" || len(res.Error.Source) != runlog.MaxErrorText || len(res.Results) != 1 {
			t.Errorf("error %.100v, %d results", res.Error, len(res.Results))
		}
		out, err := e.Output(t.Context(), alice, r.ID, 0)
		if err != nil || out.Stderr != strings.Repeat("t\n", 200)+"traceback of end\n" {
			t.Errorf("%q, %v", out.Stderr, err)
		}
	})
}

// TestContextLongEvent has an event that is not read end its run, and nothing
// else: what it showed is lost, and the run must not look whole.
func TestContextLongEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := openWorld(t, newWorld(), t.TempDir(), nil)
		r := e.mustWait(t, e.mustStart(t, inContext("out a\noverlong\nwait")).ID)
		checkVerdict(t, r, sandbox.Killed, "too long")
		if !strings.Contains(r.Verdict.NextStep, "smaller results") {
			t.Errorf("next step %q", r.Verdict.NextStep)
		}
		next := inContext("out b")
		next.SandboxID = r.SandboxID
		checkVerdict(t, e.mustWait(t, e.mustStart(t, next).ID), sandbox.OK, "")
	})
}

func TestContextStop(t *testing.T) {
	for script, lost := range map[string]bool{"wait": false, "hang": true} {
		synctest.Test(t, func(t *testing.T) {
			e := openWorld(t, newWorld(), t.TempDir(), nil)
			r := e.mustStart(t, inContext(script))
			r, err := e.StopRun(t.Context(), alice, r.ID)
			if err != nil {
				t.Fatal(err)
			}
			checkVerdict(t, r, sandbox.Cancelled, map[bool]string{false: "the context keeps its variables", true: "its interpreter was killed; state lost"}[lost])
			if r.Context.StateLost != lost {
				t.Errorf("%s: %+v", script, r.Context)
			}
		})
	}
}

// TestContextGuestKeepsNoTime has a guest that interrupts nothing: the sandbox
// goes.
func TestContextGuestKeepsNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), nil)
		req := inContext("wait")
		req.Timeout = time.Second
		begun := time.Now()
		r := e.mustStart(t, req)
		b := w.only(t)
		b.mu.Lock()
		b.deaf = true
		b.mu.Unlock()
		r = e.mustWait(t, r.ID)
		checkVerdict(t, r, sandbox.Timeout, "")
		if took := time.Since(begun); took > time.Second+2*run.InterruptGrace+3*run.Backstop {
			t.Errorf("took %v", took)
		}
	})
}

// TestContextGuestLiesAboutTurns has guests that do not keep the timeout of a
// run, and say again and again that its turn has come, or never.
func TestContextGuestLiesAboutTurns(t *testing.T) {
	const timeout = 2 * time.Second
	maxTimeout := 10 * time.Minute
	for code, most := range map[string]time.Duration{
		"recount 500ms": timeout + run.InterruptGrace + 2*run.Backstop,
		"recount 6s":    timeout + run.InterruptGrace + 2*run.Backstop,
		"silent":        maxTimeout + timeout + run.StartTimeout + 2*(run.InterruptGrace+run.Backstop) + run.Backstop,
	} {
		t.Run(code, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := openWorld(t, newWorld(), t.TempDir(), func(o *Options) { o.MaxRunTimeout = maxTimeout })
				req := inContext(code)
				req.Timeout = timeout
				req.New.Limits = sandbox.Limits{Idle: time.Hour, Lifetime: 5 * time.Hour}
				r := e.mustWait(t, e.mustStart(t, req).ID)
				checkVerdict(t, r, sandbox.Timeout, "")
				if took := r.Ended.Sub(r.Started); took > most {
					t.Errorf("took %v, want at most %v", took, most)
				}
			})
		})
	}
}

// TestContextRunWaitsForItsTurn has runs that wait behind long ones of the same
// context for more than their own timeout.
func TestContextRunWaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), nil)
		first := inContext("silent")
		first.Timeout = 10 * time.Minute
		first.New.Limits = sandbox.Limits{Idle: time.Hour, Lifetime: 5 * time.Hour}
		ahead := e.mustStart(t, first)
		second := inContext("silent")
		second.SandboxID, second.Timeout = ahead.SandboxID, time.Second
		behind := e.mustStart(t, second)
		b := w.only(t)
		time.Sleep(10 * time.Minute)
		b.mu.Lock()
		x := b.execs[behind.ID]
		x.say(&guestapi.Event{Turn: &guestapi.Turn{Count: 2}})
		b.endExec(x, guestapi.End{Status: guestapi.EndOK})
		b.mu.Unlock()
		checkVerdict(t, e.mustWait(t, behind.ID), sandbox.OK, "")
	})
}

func TestContextInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := openWorld(t, newWorld(), t.TempDir(), nil)
		req := inContext("ask name?\nout done")
		req.KeepStdin = true
		r := e.mustStart(t, req)
		synctest.Wait()
		look := func() sandbox.Run {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			run, _ := e.Wait(ctx, alice, r.ID)
			return run
		}
		if run := look(); run.Input == nil || run.Input.Prompt != "name?" {
			t.Errorf("it waits for %+v", run.Input)
		}
		if err := e.SendInput(t.Context(), alice, r.ID, []byte("a\xff"), false); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("input that is no text: %v", err)
		}
		if err := e.SendInput(t.Context(), alice, r.ID, []byte("bob\n"), false); err != nil {
			t.Fatal(err)
		}
		r = e.mustWait(t, r.ID)
		out, err := e.Output(t.Context(), alice, r.ID, 0)
		if err != nil || out.Stdout != "name?bob\ndone\n" || r.Input != nil {
			t.Errorf("%+v, %v, %+v", out, err, r.Input)
		}
	})
}

func TestContextRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), nil)
		for _, c := range []struct {
			req  sandbox.RunRequest
			kind sandbox.Kind
			text string
		}{
			{sandbox.RunRequest{Code: "1", Context: "a b"}, sandbox.Invalid, "context"},
			{sandbox.RunRequest{Code: "1", Context: strings.Repeat("a", 64+1)}, sandbox.Invalid, "context"},
			{sandbox.RunRequest{Code: "1", Context: "a", Dir: "/"}, sandbox.Invalid, "cwd"},
			{sandbox.RunRequest{Code: "1", Context: "a", Root: true}, sandbox.Invalid, "root"},
			{sandbox.RunRequest{Code: "1", Context: "a", Args: []string{"x"}}, sandbox.Invalid, "args"},
			{sandbox.RunRequest{Argv: []string{"print"}, Context: "a"}, sandbox.Invalid, "context"},
			{sandbox.RunRequest{Code: "1", Restart: true}, sandbox.Invalid, "restart"},
			{sandbox.RunRequest{Code: "1", Language: "go", Context: "a"}, sandbox.Unsupported, "no contexts"},
		} {
			if _, err := e.Start(t.Context(), alice, c.req); !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%+v: %v", c.req, err)
			}
		}
		// What no context has runs by itself where no context was asked for.
		s := e.mustCreate(t, sandbox.CreateRequest{})
		req := inContext("package main")
		req.Language, req.SandboxID = "perl", s.ID
		if r := e.mustWait(t, e.mustStart(t, req).ID); r.Context != nil {
			t.Errorf("perl has a context: %+v", r.Context)
		}
		w.only(t).lacks = "javascript"
		req.Language = "js"
		if _, err := e.Start(t.Context(), alice, req); !errors.Is(err, sandbox.Unsupported) || !strings.Contains(sandbox.HintOf(err), "nodejs") {
			t.Errorf("a language that is not there: %v (%s)", err, sandbox.HintOf(err))
		}
		if runs, err := e.Runs(t.Context(), alice, s.ID, 0); err != nil || len(runs) != 1 {
			t.Errorf("runs that did not begin are kept: %+v, %v", runs, err)
		}
	})
}

func TestContextTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), nil)
		r := e.mustWait(t, e.mustStart(t, inContext("out a")).ID)
		list, err := e.Contexts(t.Context(), alice, r.SandboxID)
		if err != nil || len(list) != 1 || list[0].Name != "default" || list[0].Language != "python" {
			t.Errorf("%+v, %v", list, err)
		}
		used := e.mustGet(t, r.SandboxID).Used
		time.Sleep(time.Minute)
		if _, err := e.Contexts(t.Context(), alice, r.SandboxID); err != nil || !e.mustGet(t, r.SandboxID).Used.Equal(used) {
			t.Errorf("looking at the contexts counts as use of the sandbox (%v)", err)
		}
		if err := e.RemoveContext(t.Context(), alice, r.SandboxID, "default", "py"); err != nil {
			t.Error(err)
		}
		req := inContext("out a")
		req.SandboxID, req.Restart = r.SandboxID, true
		e.mustWait(t, e.mustStart(t, req).ID)
		if got := fmt.Sprint(w.only(t).ended); got != "[remove default-python restart default-python]" {
			t.Errorf("the guest was asked to %s", got)
		}
		for _, c := range []struct {
			p              sandbox.Principal
			name, language string
			kind           sandbox.Kind
		}{
			{alice, "other", "python", sandbox.NotFound},
			{alice, "default", "go", sandbox.Unsupported},
			{alice, "", "python", sandbox.Invalid},
			{"bob", "default", "python", sandbox.NotFound},
		} {
			if err := e.RemoveContext(t.Context(), c.p, r.SandboxID, c.name, c.language); !errors.Is(err, c.kind) {
				t.Errorf("%+v: %v", c, err)
			}
		}
		if _, err := e.Contexts(t.Context(), "bob", r.SandboxID); !errors.Is(err, sandbox.NotFound) {
			t.Errorf("another principal: %v", err)
		}
	})
}

// TestContextRunIsTakenOver crashes the server during a run in a context.
func TestContextRunIsTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, dir := newWorld(), t.TempDir()
		detached := func(o *Options) { o.Detached = true }
		old := openWorld(t, w, dir, detached)
		req := inContext("out before\nshow a\nask go\nout after\nshow b\nraise end")
		req.KeepStdin = true
		r := old.mustStart(t, req)
		synctest.Wait()
		old.crash(t)
		e := openWorld(t, w, dir, detached)
		if err := e.SendInput(t.Context(), alice, r.ID, []byte("x\n"), false); err != nil {
			t.Fatal(err)
		}
		r = e.mustWait(t, r.ID)
		checkVerdict(t, r, sandbox.Failed, "Error: end")
		res := e.mustResults(t, r.ID)
		out, err := e.Output(t.Context(), alice, r.ID, 0)
		if err != nil || out.Stdout != "before\ngox\nafter\n" || len(res.Results) != 2 || res.Error == nil {
			t.Errorf("%+v, %v, %+v", out, err, res)
		}
		if res.Results[1].Stdout != int64(len(out.Stdout)) {
			t.Errorf("the second result is at %d", res.Results[1].Stdout)
		}
		// And what is over is still there for the one after.
		e.crash(t)
		e = openWorld(t, w, dir, detached)
		if res := e.mustResults(t, r.ID); len(res.Results) != 2 {
			t.Errorf("%+v", res)
		}
		if got, err := e.Wait(t.Context(), alice, r.ID); err != nil || got.Context == nil || got.Context.Name != "default" {
			t.Errorf("%+v, %v", got, err)
		}
		if err := e.Stop(t.Context(), alice, r.SandboxID); err != nil {
			t.Fatal(err)
		}
	})
}

// TestContextRunOfAnotherProcess stops a run that another process looks after.
func TestContextRunOfAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, dir := newWorld(), t.TempDir()
		owner, other := openWorld(t, w, dir, nil), openWorld(t, w, dir, nil)
		r := owner.mustStart(t, inContext("show a\nwait"))
		synctest.Wait()
		if res := other.mustResults(t, r.ID); len(res.Results) != 1 {
			t.Errorf("results %+v", res)
		}
		r, err := other.StopRun(t.Context(), alice, r.ID)
		if err != nil {
			t.Fatal(err)
		}
		checkVerdict(t, r, sandbox.Cancelled, "the context keeps")
	})
}

// TestResultsAreSwept checks that results go with their run.
func TestResultsAreSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := openWorld(t, newWorld(), t.TempDir(), nil)
		r := e.mustWait(t, e.mustStart(t, inContext("show a")).ID)
		name := r.SandboxID + "/" + r.ID + ".results"
		if _, err := e.logs.Stat(name); err != nil {
			t.Fatal(err)
		}
		time.Sleep(25 * time.Hour)
		e.mustSweep(t)
		if _, err := e.logs.Stat(name); err == nil {
			t.Error("results are left")
		}
	})
}
