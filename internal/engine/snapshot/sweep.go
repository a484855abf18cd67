package snapshot

import (
	"context"
	"errors"
	"slices"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Sweep removes snapshots that are too old, and what processes left that died: a state
// without a record, and a record of a snapshot that was never completed. A record whose
// state is gone is marked as lost, so that its owner sees it.
func (k *Keeper) Sweep(ctx context.Context) error {
	d, err := driver.Snapshots(k.opts.Driver)
	if err != nil {
		return nil // there are none
	}
	// List the states before the records: a record is written before its state.
	states, err := d.Snapshots(ctx)
	if err != nil {
		return sandbox.Wrap(err, "sweep snapshots", "")
	}
	recs, err := k.opts.Records.Snapshots(ctx, "")
	if err != nil {
		return err
	}
	warm, err := k.opts.Records.WarmBoxes(ctx)
	if err != nil {
		return err
	}
	now := k.opts.Now()
	var errs []error
	known := map[string]bool{}
	for _, id := range warm {
		known[id] = true // a prototype of a pool
	}
	for _, r := range recs {
		if r.Driver != k.opts.Name {
			continue
		}
		state := sandbox.DriverSnapshot(r.ID)
		known[state] = true
		if r.State == sandbox.SnapshotMaking {
			alive, err := k.opts.Records.OwnerAlive(r.Owner)
			if err != nil || alive && now.Sub(r.Created) < 2*takeTime {
				errs = append(errs, err)
				continue
			}
			// Its owner has ended, or could not remove it after a failure: it counts in
			// the quota until then.
			k.opts.Log.Warn("removed a snapshot that was never completed", "snapshot", r.ID, "sandbox", r.Sandbox)
			errs = append(errs, k.remove(ctx, r))
			continue
		}
		if r.Internal {
			if r.Needed {
				continue
			}
			alive, err := k.opts.Records.OwnerAlive(r.Owner)
			if err != nil || alive && now.Sub(r.Created) < takeTime {
				errs = append(errs, err) // its run may be about to begin, or about to end
				continue
			}
			k.opts.Log.Warn("removed the snapshot of a run that has ended", "snapshot", r.ID, "sandbox", r.Sandbox)
			errs = append(errs, k.remove(ctx, r))
			continue
		}
		if now.Sub(r.Created) > k.opts.Limits.TTL {
			k.opts.Log.Info("removed an old snapshot", "snapshot", r.ID, "sandbox", r.Sandbox)
			errs = append(errs, k.remove(ctx, r))
			continue
		}
		if r.State == sandbox.SnapshotKept && !slices.Contains(states, state) && r.Created.Before(now) {
			// It may have been completed since the states were listed.
			again, err := d.Snapshots(ctx)
			if err != nil || slices.Contains(again, state) {
				errs = append(errs, err)
				continue
			}
			k.opts.Log.Error("the files of a snapshot are gone", "snapshot", r.ID, "sandbox", r.Sandbox)
			errs = append(errs, k.opts.Records.LostSnapshot(ctx, r.ID))
		}
	}
	for _, state := range states {
		if !known[state] {
			k.opts.Log.Warn("removed a state that belonged to no snapshot", "snapshot", state)
			errs = append(errs, d.RemoveSnapshot(ctx, state))
		}
	}
	return sandbox.Wrap(errors.Join(errs...), "sweep snapshots", "")
}
