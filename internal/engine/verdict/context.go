package verdict

import (
	"fmt"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/engine/excerpt"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// The state of a context's variables, for verdicts other than ok.
const (
	stateKept = "the context keeps its variables"
	stateLost = "state lost: the next run in the context starts fresh"
)

// maxCause bounds, in bytes, the text of an exception in a cause.
const maxCause = 256

const nextInput = "pass the value in the code, or set wait_seconds and answer with send_input"

// settleContext judges the end of a run in a context from the guest's end
// event.
func (e Ending) settleContext() sandbox.Verdict {
	x := e.Context
	state := stateKept
	if x.StateLost {
		state = stateLost
	}
	and := func(v sandbox.Verdict) sandbox.Verdict {
		v.Cause += "; " + state
		return v
	}
	switch {
	case e.Fate == FateTimeout || x.TimedOut:
		how := "was interrupted"
		if x.StateLost {
			how = "did not end when it was interrupted, so its interpreter was killed"
		}
		return and(sandbox.Verdict{
			Code:     sandbox.Timeout,
			Cause:    fmt.Sprintf("it ran longer than its timeout of %v and %s", e.Timeout, how),
			NextStep: nextTime,
		})
	case e.Fate == FateBroken: // the engine stopped it then
		return and(Unkept("output", e.Broken))
	case e.Fate == FateDiskFull:
		return and(overQuota(e.Broken))
	case e.Fate == FateCancelled || x.Stopped:
		how := "it was stopped on request"
		if x.Killed {
			how += ", and as it did not end when it was interrupted, its interpreter was killed"
		}
		return and(sandbox.Verdict{Code: sandbox.Cancelled, Cause: how})
	case e.Why != nil && x.Status != guestapi.EndOK:
		return e.Why.Verdict()
	case x.Status == guestapi.EndOK:
		return sandbox.Verdict{Code: sandbox.OK}
	case x.Status == guestapi.EndDied:
		return and(e.died())
	}
	return and(e.raised())
}

// died judges a run whose interpreter ended.
func (e Ending) died() sandbox.Verdict {
	// The causes are the same as for a killed process. If the interpreter just
	// ended, the guest's cause is more specific.
	v := e.failure(nil)
	if v.Code == sandbox.Killed && e.Context.Cause != "" {
		v.Cause = e.Context.Cause
	}
	return v
}

// raised judges a run that ended with an exception or with a status other than
// 0.
func (e Ending) raised() sandbox.Verdict {
	code := -1
	if e.Context.ExitCode != nil {
		code = *e.Context.ExitCode
	}
	v := e.failure(&code)
	if v.Code != sandbox.Failed {
		return v
	}
	switch x := e.Exception; {
	case e.Context.Status == guestapi.EndExit:
	case x != nil:
		v.Cause = excerpt.Cut(strings.TrimSpace(string(excerpt.FirstLine([]byte(x.Name+": "+x.Value)))), maxCause)
		if x.Line > 0 {
			v.Cause += fmt.Sprintf(", in line %d", x.Line)
		}
		v.NextStep = nextOf(*x)
	case e.Context.Status == guestapi.EndInterrupted:
		v.Cause, v.NextStep = "it was interrupted", ""
	default:
		v.Cause, v.NextStep = "an exception ended it", ""
	}
	return v
}

// nextOf returns the next step for an exception, or "" if none is known.
func nextOf(x sandbox.RunError) string {
	switch {
	case strings.Contains(x.Value, "nobody can answer"):
		return nextInput
	case x.Name == "ModuleNotFoundError" || strings.HasPrefix(x.Value, "Cannot find module"):
		return "see with list_languages what is there, or install it with install_packages"
	case x.Name == "Unsupported":
		return "use an image with a newer interpreter, or run it with stateless=true"
	}
	return ""
}
