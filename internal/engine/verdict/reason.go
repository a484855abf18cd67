package verdict

import (
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Reason is why a sandbox stops, and the verdict that its runs get.
type Reason struct {
	Cause string
	Code  sandbox.VerdictCode
	Next  string        // the next step
	Retry time.Duration // after which a sandbox may start again; 0 if unknown
}

// Verdict returns the verdict on a run in the sandbox.
func (r Reason) Verdict() sandbox.Verdict {
	return sandbox.Verdict{Code: r.Code, Cause: r.Cause, NextStep: r.Next}
}
