package run

import (
	"context"
	"errors"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// lookTimeout bounds the guest's look at what a run changed, because the end of the
// run waits for it.
const lookTimeout = 5 * time.Second

// lookInside returns what the run changed, with hashes. For a sandbox without a
// workspace, the guest knows; otherwise the guest adds the hashes to changes. It
// returns changes as they are if the guest does not answer, or if its agent is not
// ours.
func (r *Run) lookInside(ctx context.Context, changes *sandbox.Changes) *sandbox.Changes {
	if r.in.stops() || r.in.blind.Load() || r.in.Mount != nil && changes == nil {
		return changes
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	req := guestapi.ChangesRequest{Run: r.rec.ID}
	var at []int // of the hashes in changes
	if changes != nil {
		for i, f := range changes.Files {
			if f.Change != sandbox.FileRemoved {
				req.Hash, at = append(req.Hash, f.Path), append(at, i)
			}
		}
	}
	found, err := r.in.Guest.Changes(ctx, req)
	switch {
	case errors.Is(err, sandbox.Unsupported):
		r.in.blind.Store(true)
	case err != nil:
		r.set.opts.Log.Debug("look at changes", "run", r.rec.ID, "error", err)
	case changes == nil && found.Known:
		return &found.Changes
	case changes != nil:
		for k, i := range at {
			changes.Files[i].SHA256 = found.Hashes[k]
		}
	}
	return changes
}
