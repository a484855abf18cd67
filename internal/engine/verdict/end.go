package verdict

import (
	"fmt"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/engine/excerpt"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// certain reports whether the end counts even if the sandbox stops. An exception
// may come from the stop.
func certain(end guestapi.End) bool {
	return end.Status == guestapi.EndOK || end.Status == guestapi.EndExit && !end.Context
}

// chosenCode returns the exit code of a program that the engine or its guest
// ended. Code in a context may have chosen one. The exit code of such a process is
// its shell's.
func chosenCode(end guestapi.End) *int {
	if end.Context {
		return end.ExitCode
	}
	return nil
}

// timedOut says what ended a program after its timeout.
func timedOut(end guestapi.End) string {
	switch {
	case !end.Context:
		return "was killed"
	case end.StateLost:
		return "did not end when it was interrupted, so its interpreter was killed"
	}
	return "was interrupted"
}

// stopped says what ended a program on request.
func stopped(end guestapi.End) string {
	if end.Killed {
		return "it was stopped on request, and as it did not end when it was interrupted, its interpreter was killed"
	}
	return "it was stopped on request"
}

// withState adds the state of the context's variables to a verdict other than ok.
func withState(end guestapi.End, v sandbox.Verdict) sandbox.Verdict {
	switch {
	case !end.Context:
	case end.StateLost:
		v.Cause += lostNote
	default:
		v.Cause += keptNote
	}
	return v
}

// The notes of withState.
const (
	lostNote = "; state lost: the next run in the context starts fresh"
	keptNote = "; the context keeps its variables"
)

// Undone is the verdict on a run whose sandbox returned to its state from before it.
func Undone(v sandbox.Verdict) sandbox.Verdict {
	for _, note := range []string{lostNote, keptNote} {
		if cause, ok := strings.CutSuffix(v.Cause, note); ok {
			v.Cause = cause + "; the context has its variables from before the run"
			break
		}
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
