package verdict

import (
	"fmt"

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
		return end.withState(sandbox.Verdict{
			Code:     sandbox.Timeout,
			Cause:    fmt.Sprintf("it ran longer than its timeout of %v and %s", e.Timeout, end.timedOut()),
			NextStep: nextTime,
		}), end.chosenCode()
	case e.Fate == FateBroken:
		return end.withState(Unkept("output", e.Broken)), end.chosenCode()
	case e.Fate == FateDiskFull:
		return end.withState(overQuota(e.Broken)), end.ExitCode
	case e.Fate == FateCancelled || end.Stopped: // the engine stops code in a context for a fate, too
		return end.withState(sandbox.Verdict{Code: sandbox.Cancelled, Cause: end.stopped()}), end.chosenCode()
	case e.Why != nil && !end.certain():
		return e.Why.Verdict(), end.chosenCode()
	case end.How == Unknown:
		return sandbox.Verdict{
			Code:     sandbox.SandboxLost,
			Cause:    "the sandbox lost track of it",
			NextStep: "run it again",
		}, nil
	case end.How == NotRun:
		return sandbox.Verdict{Code: sandbox.Failed, Cause: "it could not be run: " + end.Cause}, nil
	case end.How == Succeeded:
		return sandbox.Verdict{Code: sandbox.OK}, end.ExitCode
	}
	if e.MissesState && (end.How == Raised || end.How == Exited) {
		// The context has nothing of an earlier sandbox. The caller may believe
		// otherwise, and the note would confirm it.
		return e.failure(), end.ExitCode
	}
	return end.withState(e.failure()), end.ExitCode
}
