package engine

import (
	"context"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// maxHistory bounds one list of runs.
const maxHistory = 1000

// Runs returns the last limit runs of a sandbox, the oldest first, whether they
// go on or have ended; a sandbox that has stopped has its runs for as long as
// it is remembered itself. It does not wake the sandbox. A limit of 0, or above
// 1000, is 1000.
func (e *Engine) Runs(ctx context.Context, p sandbox.Principal, sandboxID string, limit int) ([]sandbox.Run, error) {
	const op = "list runs"
	if limit < 0 {
		return nil, sandbox.Wrap(invalid("limit: %d is negative", limit), op, "")
	}
	if limit == 0 || limit > maxHistory {
		limit = maxHistory
	}
	if _, _, err := e.find(ctx, p, sandboxID); err != nil {
		return nil, sandbox.Wrap(err, op, "")
	}
	recs, err := e.store.RecentRuns(ctx, sandboxID, limit)
	if err != nil {
		return nil, sandbox.Wrap(err, op, sandboxID)
	}
	runs := make([]sandbox.Run, 0, len(recs))
	for _, rec := range recs {
		e.mu.Lock()
		live := e.runs[rec.ID]
		e.mu.Unlock()
		if live == nil {
			runs = append(runs, rec.Run)
			continue
		}
		// One that this process has let go of is shown as it stood.
		run, _ := live.state()
		runs = append(runs, run)
	}
	return runs, nil
}
