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
	if e.Context != nil {
		return e.settleContext(), e.Context.ExitCode
	}
	code := e.exitCode()
	switch {
	case e.Fate == FateTimeout || e.Event != nil && e.detail().TimedOut:
		return sandbox.Verdict{
			Code:     sandbox.Timeout,
			Cause:    fmt.Sprintf("it ran longer than its timeout of %v and was killed", e.Timeout),
			NextStep: nextTime,
		}, nil
	case e.Fate == FateCancelled:
		return sandbox.Verdict{Code: sandbox.Cancelled, Cause: "it was stopped on request"}, nil
	case e.Fate == FateBroken:
		return Unkept("output", e.Broken), nil
	case e.Fate == FateDiskFull:
		return overQuota(e.Broken), code
	case e.Why != nil && (e.Event == nil || !e.Event.Exited):
		return e.Why.Verdict(), nil
	case e.Event == nil:
		return sandbox.Verdict{
			Code:     sandbox.SandboxLost,
			Cause:    "the sandbox lost track of it",
			NextStep: "run it again",
		}, nil
	case e.Event.Error != "":
		return sandbox.Verdict{Code: sandbox.Failed, Cause: "it could not be run: " + e.Event.Error}, code
	case code != nil && *code == 0:
		return sandbox.Verdict{Code: sandbox.OK}, code
	}
	return e.failure(code), code
}
