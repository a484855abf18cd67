package run

import (
	"context"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Undoes reports whether the sandbox returns to its state from before the run if the run
// fails. It then has no other run.
func (r *Run) Undoes() bool { return r.rec.Undo != "" }

// undo gives the sandbox the state of the run's snapshot, if the run failed. The result
// is nil for a run that did not fail, or has no snapshot. forgetUndo must follow.
func (r *Run) undo(ctx context.Context, failed bool) *sandbox.Rollback {
	if !r.Undoes() || !failed {
		return nil
	}
	r.undoing.Store(true)
	defer r.undoing.Store(false)
	result := &sandbox.Rollback{Workspace: r.in.Mount != nil}
	if r.in.stops() {
		result.Cause = "the sandbox stopped"
		return result
	}
	// It has a timeout of its own.
	if err := r.in.Life.Undo(context.WithoutCancel(ctx), r.rec.Undo); err != nil {
		r.set.opts.Log.Error("roll back after a failed run", "run", r.rec.ID, "error", err)
		result.Cause = err.Error()
		return result
	}
	result.Done = true
	return result
}

// forgetUndo removes the run's snapshot. The run is recorded, so the sweep tries again
// after an error.
func (r *Run) forgetUndo(ctx context.Context) {
	if !r.Undoes() {
		return
	}
	if err := r.in.Life.Forget(context.WithoutCancel(ctx), r.rec.Undo); err != nil {
		r.set.opts.Log.Error("remove the snapshot of a run", "run", r.rec.ID, "snapshot", r.rec.Undo, "error", err)
	}
}
