package verdict

import (
	"fmt"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/engine/excerpt"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A How is the kind of an end.
type How int

// The kinds of ends.
const (
	Unknown     How = iota // the guest reported none: the sandbox was lost first
	Succeeded              // a process exited with 0, or code in a context came to its end
	Exited                 // with another status
	Raised                 // an exception ended code in a context
	Interrupted            // code in a context was interrupted
	Died                   // a signal killed the process, or the interpreter ended
	NotRun                 // the process could not be started or waited for
)

// An End is the end of a program, as its guest reports it: of a process, or of
// code in a context.
type End struct {
	How       How
	ExitCode  *int               // nil for a program that did not exit by itself
	Cause     string             // with NotRun, or a better cause than the signal with Died; may be ""
	Status    string             // the guest's text for the end
	Exception *sandbox.RunError  // with Raised and Interrupted; may be nil
	Detail    guestapi.EndDetail // counts and limits

	// TimedOut and Stopped mean that the guest ended it, for its timeout or on
	// request.
	TimedOut, Stopped bool

	// Context means that it is code in a context. Killed means that it did not
	// end when it was interrupted, and StateLost that its variables are gone.
	Context, Killed, StateLost bool
}

// OfProcess returns the end of a process. ev is nil if the guest reported none.
func OfProcess(ev *guestapi.EndEvent) End {
	if ev == nil {
		return End{}
	}
	end := End{How: Died, Status: ev.Status}
	if ev.Detail != nil {
		end.Detail, end.TimedOut = *ev.Detail, ev.Detail.TimedOut
	}
	switch {
	case ev.Error != "":
		end.How, end.Cause = NotRun, ev.Error
	case ev.Exited:
		code := int(ev.ExitCode)
		end.How, end.ExitCode = Exited, &code
		if code == 0 {
			end.How = Succeeded
		}
	}
	return end
}

// OfContext returns the end of code in a context. exception is the exception that
// ended the code, or nil.
func OfContext(x guestapi.ExecutionEnd, exception *sandbox.RunError) End {
	end := End{
		How: Raised, ExitCode: x.ExitCode, Cause: x.Cause, Status: x.Status, Exception: exception, Detail: x.Detail,
		TimedOut: x.TimedOut, Stopped: x.Stopped, Context: true, Killed: x.Killed, StateLost: x.StateLost,
	}
	if end.Detail.Signal == 0 {
		end.Detail.Signal = x.Signal
	}
	switch x.Status {
	case guestapi.EndOK:
		end.How = Succeeded
	case guestapi.EndDied:
		end.How = Died
	case guestapi.EndExit:
		end.How = Exited
	case guestapi.EndInterrupted:
		end.How = Interrupted
	}
	return end
}

// certain reports whether the end counts even if the sandbox stops. An exception
// may come from the stop.
func (e End) certain() bool { return e.How == Succeeded || e.How == Exited && !e.Context }

// chosenCode returns the exit code of a program that the engine or its guest
// ended. Code in a context may have chosen one. The exit code of such a process is
// its shell's.
func (e End) chosenCode() *int {
	if e.Context {
		return e.ExitCode
	}
	return nil
}

// timedOut says what ended a program after its timeout.
func (e End) timedOut() string {
	switch {
	case !e.Context:
		return "was killed"
	case e.StateLost:
		return "did not end when it was interrupted, so its interpreter was killed"
	}
	return "was interrupted"
}

// stopped says what ended a program on request.
func (e End) stopped() string {
	if e.Killed {
		return "it was stopped on request, and as it did not end when it was interrupted, its interpreter was killed"
	}
	return "it was stopped on request"
}

// withState adds the state of the context's variables to a verdict other than ok.
func (e End) withState(v sandbox.Verdict) sandbox.Verdict {
	switch {
	case !e.Context:
	case e.StateLost:
		v.Cause += "; state lost: the next run in the context starts fresh"
	default:
		v.Cause += "; the context keeps its variables"
	}
	return v
}

// maxCause bounds, in bytes, the text of an exception in a cause.
const maxCause = 256

const nextInput = "pass the value in the code, or set wait_seconds and answer with send_input"

// raised judges code that an exception ended.
func raised(x sandbox.RunError) sandbox.Verdict {
	cause := excerpt.Cut(strings.TrimSpace(string(excerpt.FirstLine([]byte(x.Name+": "+x.Value)))), maxCause)
	if x.Line > 0 {
		cause += fmt.Sprintf(", in line %d", x.Line)
	}
	return sandbox.Verdict{Code: sandbox.Failed, Cause: cause, NextStep: nextOf(x)}
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
