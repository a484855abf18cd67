package verdict

import (
	"fmt"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Settle judges how a run ended. The engine's own fate for it comes first, then
// a lost sandbox, then success. A failure gets the most specific cause that the
// guest and the driver saw. The exit code is nil for a program that did not
// exit by itself.
func Settle(e Ending) (sandbox.Verdict, *int) {
	end := e.End
	switch {
	case e.Fate == FateTimeout || end.TimedOut:
		return withState(end, sandbox.Verdict{
			Code:     sandbox.Timeout,
			Cause:    fmt.Sprintf("it ran longer than its timeout of %v and %s", e.Timeout, timedOut(end)),
			NextStep: nextTime,
		}), chosenCode(end)
	case e.Fate == FateBroken:
		return withState(end, Unkept("output", e.Broken)), chosenCode(end)
	case e.Fate == FateUnready:
		return sandbox.Verdict{
			Code:     sandbox.Timeout,
			Cause:    fmt.Sprintf("the service was not ready in time, and was ended: %v", e.Broken),
			NextStep: "read its output, correct the program or the check, or allow more time",
		}, chosenCode(end)
	case e.Fate == FateDiskFull:
		return withState(end, overQuota(e.Broken)), end.ExitCode
	case e.Fate == FateCancelled || end.Stopped: // the engine stops code in a context for a fate, too
		return withState(end, sandbox.Verdict{Code: sandbox.Cancelled, Cause: stopped(end)}), chosenCode(end)
	case e.Why != nil && !certain(end):
		return e.Why.Verdict(), chosenCode(end)
	case end.Status == "":
		return sandbox.Verdict{
			Code:     sandbox.SandboxLost,
			Cause:    "the sandbox lost track of it",
			NextStep: "run it again",
		}, nil
	case end.Status == guestapi.EndNotRun:
		return sandbox.Verdict{Code: sandbox.Failed, Cause: "it could not be run: " + end.Cause}, nil
	case end.Status == guestapi.EndOK:
		return sandbox.Verdict{Code: sandbox.OK}, end.ExitCode
	}
	if e.MissesState && (end.Status == guestapi.EndError || end.Status == guestapi.EndExit) {
		// The context has nothing of an earlier sandbox. The caller may believe
		// otherwise, and the note would confirm it.
		return e.failure(), end.ExitCode
	}
	return withState(end, e.failure()), end.ExitCode
}
