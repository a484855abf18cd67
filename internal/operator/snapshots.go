package operator

import (
	"context"
	"slices"

	"github.com/glovebox-dev/glovebox/internal/control"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// Snapshot does an action with a sandbox, in the process that holds it.
func (o *Operator) Snapshot(ctx context.Context, id string, req control.SnapshotRequest) (control.SnapshotAnswer, error) {
	c, err := o.holder(ctx, id)
	if err != nil {
		return control.SnapshotAnswer{}, err
	}
	return c.Snapshot(ctx, id, req)
}

// Snapshots returns the snapshots of all principals, the newest first, without those that
// were taken for runs.
func (o *Operator) Snapshots(ctx context.Context) ([]store.Snapshot, error) {
	list, err := o.store.Snapshots(ctx, "")
	return slices.DeleteFunc(list, func(s store.Snapshot) bool { return s.Internal }), err
}

// RemoveSnapshot removes a snapshot of any principal by its identifier.
func (o *Operator) RemoveSnapshot(ctx context.Context, id string) error {
	list, err := o.store.Snapshots(ctx, "")
	if err != nil {
		return err
	}
	for _, s := range list {
		if s.ID == id {
			return o.engine.RemoveSnapshot(ctx, s.Principal, id)
		}
	}
	return sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "there is no snapshot %q", id), "glovebox snapshot ls lists them")
}
