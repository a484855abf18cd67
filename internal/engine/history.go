package engine

import (
	"context"

	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// maxHistory bounds the length of a list of runs.
const maxHistory = 1000

// Runs returns the last limit runs of a sandbox, oldest first, in progress and
// finished ones. The runs of a stopped sandbox are kept as long as its record.
// Runs does not wake the sandbox. A limit of 0, or above 1000, means 1000. A
// negative limit is of kind Invalid.
func (e *Engine) Runs(ctx context.Context, p sandbox.Principal, sandboxID string, limit int) ([]sandbox.Run, error) {
	const op = "list runs"
	if limit < 0 {
		return nil, sandbox.Wrap(request.Invalid("limit: %d is negative", limit), op, "")
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
		live := e.runs.Find(rec.ID)
		if live == nil {
			runs = append(runs, rec.Run)
			continue
		}
		// A run that this process has let go of is shown in its last known
		// state.
		shown, _ := live.View()
		runs = append(runs, shown)
	}
	return runs, nil
}
