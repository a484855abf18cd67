package verdict

import (
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestSettleContext judges code in contexts. The cause says what became of the
// variables, except for a lost sandbox.
func TestSettleContext(t *testing.T) {
	const kept, lost = "; the context keeps its variables", "; state lost: the next run in the context starts fresh"
	why := &Reason{Cause: "the sandbox died", Code: sandbox.SandboxLost}
	status := func(n int) *int { return &n }
	for _, c := range []struct {
		name      string
		end       guestapi.End
		exception *sandbox.RunError
		fate      Fate
		why       *Reason
		want      sandbox.VerdictCode
		cause     string
		code      *int
	}{
		{name: "OK", end: guestapi.End{Status: guestapi.EndOK}, want: sandbox.OK},
		{name: "OKBeforeTheSandboxStopped", end: guestapi.End{Status: guestapi.EndOK}, why: why, want: sandbox.OK},

		{name: "Timeout", end: guestapi.End{Status: guestapi.EndInterrupted, TimedOut: true},
			want: sandbox.Timeout, cause: "it ran longer than its timeout of 30s and was interrupted" + kept},
		{name: "TimeoutThatKills", end: guestapi.End{Status: guestapi.EndDied, Killed: true, StateLost: true}, fate: FateTimeout,
			want: sandbox.Timeout, cause: "it ran longer than its timeout of 30s and did not end when it was interrupted, so its interpreter was killed" + lost},
		{name: "TimeoutWithAChosenCode", end: guestapi.End{Status: guestapi.EndExit, TimedOut: true, ExitCode: status(3)},
			want: sandbox.Timeout, cause: "it ran longer than its timeout of 30s and was interrupted" + kept, code: status(3)},
		{name: "TimeoutByTheEngine", fate: FateTimeout, end: guestapi.End{Status: guestapi.EndInterrupted},
			want: sandbox.Timeout, cause: "it ran longer than its timeout of 30s and was interrupted" + kept},

		{name: "Stopped", end: guestapi.End{Status: guestapi.EndInterrupted, Stopped: true},
			want: sandbox.Cancelled, cause: "it was stopped on request" + kept},
		{name: "StoppedByForce", end: guestapi.End{Status: guestapi.EndDied, Stopped: true, Killed: true, StateLost: true}, fate: FateCancelled,
			want: sandbox.Cancelled, cause: "it was stopped on request, and as it did not end when it was interrupted, its interpreter was killed" + lost},

		{name: "Raised", end: guestapi.End{Status: guestapi.EndError}, exception: &sandbox.RunError{Name: "ValueError", Value: "no\nnumber", Line: 7},
			want: sandbox.Failed, cause: "ValueError: no, in line 7" + kept},
		{name: "RaisedUnknown", end: guestapi.End{Status: guestapi.EndError}, want: sandbox.Failed, cause: "an exception ended it" + kept},
		{name: "RaisedWhileTheSandboxStopped", end: guestapi.End{Status: guestapi.EndError}, why: why, want: sandbox.SandboxLost, cause: "the sandbox died"},
		{name: "Interrupted", end: guestapi.End{Status: guestapi.EndInterrupted}, want: sandbox.Failed, cause: "it was interrupted" + kept},
		{name: "Exit", end: guestapi.End{Status: guestapi.EndExit, ExitCode: status(3)}, want: sandbox.Failed, cause: "it exited with status 3" + kept, code: status(3)},

		{name: "Died", end: guestapi.End{Status: guestapi.EndDied, StateLost: true, Detail: guestapi.EndDetail{Signal: 11}},
			want: sandbox.Killed, cause: "it was killed by SIGSEGV, a bad memory access" + lost},
		{name: "DiedForAReason", end: guestapi.End{Status: guestapi.EndDied, Cause: "the interpreter exited", StateLost: true},
			want: sandbox.Killed, cause: "the interpreter exited" + lost},
		{name: "OutOfMemory", end: guestapi.End{Status: guestapi.EndDied, Cause: "the interpreter died", StateLost: true, Detail: guestapi.EndDetail{Signal: 9, MemoryKill: true}},
			want: sandbox.OutOfMemory, cause: "it used more than the sandbox's 512 MiB of memory" + lost},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.end.Context = true
			v, code := Settle(Ending{
				End: c.end, Exception: c.exception, Fate: c.fate, Why: c.why, Timeout: 30 * time.Second, Limits: sandbox.DefaultLimits(),
			})
			if v.Code != c.want || v.Cause != c.cause {
				t.Errorf("%s: %q; want %s: %q", v.Code, v.Cause, c.want, c.cause)
			}
			if (code == nil) != (c.code == nil) || code != nil && *code != *c.code {
				t.Errorf("exit code %v, want %v", code, c.code)
			}
		})
	}
}

// TestExceptions names the next step for exceptions that have a known one, and
// bounds their text.
func TestExceptions(t *testing.T) {
	for value, next := range map[string]string{
		"nobody can answer":         "send_input",
		"Cannot find module 'left'": "install_packages",
		strings.Repeat("x", 10_000): "",
	} {
		v := raised(sandbox.RunError{Name: "Error", Value: value})
		if len(v.Cause) > maxCause+len("…") || !strings.Contains(v.NextStep, next) || (next == "") != (v.NextStep == "") {
			t.Errorf("%d bytes, next step %q; want %q", len(v.Cause), v.NextStep, next)
		}
	}
}

// TestAsByShell has a shell report a crash by its status, and no other signal.
func TestAsByShell(t *testing.T) {
	for signal, code := range map[int]int{11: 139, 6: 134, 9: -1, 15: -1} {
		end := killed(signal)
		if got := AsByShell(&end); got.Code() != code || (got.Status == guestapi.EndExit) != (code > 0) || end.ExitCode != nil {
			t.Errorf("signal %d: %+v, want the code %d", signal, *got, code)
		}
	}
	end := exitedWith(3)
	if got := AsByShell(&end); *got != end {
		t.Errorf("%+v, want %+v", *got, end)
	}
}

// TestUndone replaces what a cause says about a context, and nothing else.
func TestUndone(t *testing.T) {
	for cause, want := range map[string]string{
		"x" + lostNote:            "x; the context has its variables from before the run",
		"x" + keptNote:            "x; the context has its variables from before the run",
		"it exited with status 1": "it exited with status 1",
		keptNote + " no":          keptNote + " no",
	} {
		if got := Undone(sandbox.Verdict{Code: sandbox.Failed, Cause: cause}).Cause; got != want {
			t.Errorf("%q is %q, want %q", cause, got, want)
		}
	}
}
