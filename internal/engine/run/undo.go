package run

import (
	"context"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Undoes reports whether the sandbox returns to its state from before the run if the run
// fails. It then has no other run.
func (r *Run) Undoes() bool { return r.rec.Undo != "" }

// undo ends the use of the run's snapshot: if failed, the sandbox gets its state first.
// The result is nil for a run that did not fail, or has no snapshot.
func (r *Run) undo(ctx context.Context, failed bool) *sandbox.Rollback {
	if !r.Undoes() {
		return nil
	}
	r.undoing.Store(true)
	defer r.undoing.Store(false)
	stops := r.in.stops()
	// It has a timeout of its own.
	err := r.in.Life.Undo(context.WithoutCancel(ctx), r.rec.Undo, failed && !stops)
	if !failed {
		if err != nil {
			r.set.opts.Log.Error("remove the snapshot of a run", "run", r.rec.ID, "snapshot", r.rec.Undo, "error", err)
		}
		return nil
	}
	result := &sandbox.Rollback{Workspace: r.in.Mount != nil}
	switch {
	case stops:
		result.Cause = "the sandbox stopped"
	case err != nil:
		r.set.opts.Log.Error("roll back after a failed run", "run", r.rec.ID, "error", err)
		result.Cause = err.Error()
	default:
		result.Done = true
	}
	return result
}
