package engine

import (
	"context"
	"slices"

	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// Runs returns the last limit runs of a sandbox, oldest first, in progress and
// finished ones. The runs of a stopped sandbox are kept as long as its record.
// Runs does not wake the sandbox. A limit of 0, or above 1000, means 1000. A
// negative limit is of kind Invalid.
func (e *Engine) Runs(ctx context.Context, p sandbox.Principal, sandboxID string, limit int) ([]sandbox.Run, error) {
	const op = "list runs"
	limit, err := request.HistoryLimit(limit)
	if err != nil {
		return nil, sandbox.Wrap(err, op, "")
	}
	if _, _, err := e.find(ctx, p, sandboxID); err != nil {
		return nil, sandbox.Wrap(err, op, "")
	}
	recs, err := e.store.RecentRuns(ctx, sandboxID, limit)
	return e.present(recs), sandbox.Wrap(err, op, sandboxID)
}

// Services returns the services of a sandbox whose runs are in progress, oldest
// first. It does not wake the sandbox.
func (e *Engine) Services(ctx context.Context, p sandbox.Principal, sandboxID string) ([]sandbox.Run, error) {
	const op = "list services"
	if _, _, err := e.find(ctx, p, sandboxID); err != nil {
		return nil, sandbox.Wrap(err, op, "")
	}
	recs, err := e.store.RunningRuns(ctx, sandboxID)
	recs = slices.DeleteFunc(recs, func(r store.Run) bool { return r.Service == nil })
	return e.present(recs), sandbox.Wrap(err, op, sandboxID)
}

// present returns runs as they stand.
func (e *Engine) present(recs []store.Run) []sandbox.Run {
	runs := make([]sandbox.Run, 0, len(recs))
	for _, rec := range recs {
		runs = append(runs, e.shown(rec))
	}
	return runs
}

// LastRuns returns the last limit runs of p in all its sandboxes, newest first. It
// takes limit as Runs does. A run whose server was killed may be shown as running
// until a call names it.
func (e *Engine) LastRuns(ctx context.Context, p sandbox.Principal, limit int) ([]sandbox.ListedRun, error) {
	const op = "list runs"
	limit, err := request.HistoryLimit(limit)
	if err == nil {
		err = request.CheckPrincipal(p)
	}
	if err != nil {
		return nil, sandbox.Wrap(err, op, "")
	}
	recs, err := e.store.LastRuns(ctx, p, limit)
	if err != nil {
		return nil, sandbox.Wrap(err, op, "")
	}
	runs := make([]sandbox.ListedRun, len(recs))
	for i, rec := range recs {
		runs[i] = sandbox.ListedRun{Run: e.shown(rec), Language: rec.Language, Program: rec.Program}
	}
	return runs, nil
}

// shown returns the state of a recorded run. A run that this process has let go of is
// shown in its last known state.
func (e *Engine) shown(rec store.Run) sandbox.Run {
	live := e.runs.Find(rec.ID)
	if live == nil {
		return rec.Run
	}
	shown, _ := live.View()
	return shown
}
