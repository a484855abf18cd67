package e2b

import (
	"context"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/e2b/snapshots"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

var (
	_ driver.Snapshotter    = (*Box)(nil)
	_ driver.SnapshotKeeper = (*Driver)(nil)
)

// Snapshot implements [driver.Snapshotter].
func (b *Box) Snapshot(ctx context.Context, id string) (driver.Snapshot, error) {
	const op = "take snapshot of box"
	if !sandbox.ValidID(id) {
		return driver.Snapshot{}, sandbox.Wrap(sandbox.Errorf(sandbox.Invalid, "%q is not the identifier of a snapshot", id), op, b.id)
	}
	if b.image == "" {
		err := sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "this sandbox was made by an earlier version of Glovebox, which kept no image to compare"),
			"take a snapshot of a new sandbox")
		return driver.Snapshot{}, sandbox.Wrap(err, op, b.id)
	}
	names, err := b.contexts.kept()
	if err != nil {
		return driver.Snapshot{}, sandbox.Wrap(sandbox.Errorf(sandbox.Unavailable, "read names of contexts: %w", err), op, b.id)
	}
	// E2B stops the sandbox meanwhile. The streams end before, so that callers have noticed
	// when they use the box again.
	b.cut()
	if err := b.d.snapshots.Take(ctx, b.id, id, snapshots.Record{Image: b.image, Limits: b.spec, Contexts: names}); err != nil {
		return driver.Snapshot{}, sandbox.Wrap(b.noticed(err), op, b.id)
	}
	return driver.Snapshot{}, nil // E2B reports no bytes and no times
}

// CreateFrom implements [driver.SnapshotKeeper].
func (d *Driver) CreateFrom(ctx context.Context, spec *driver.Spec, snapshot string) (driver.Box, error) {
	const op = "create box of snapshot"
	if err := d.check(spec); err != nil {
		return nil, sandbox.Wrap(err, op, spec.ID)
	}
	rec, err := d.snapshots.Get(snapshot)
	if err == nil {
		err = rec.Fits(spec.Image, spec.Limits)
	}
	if err != nil {
		return nil, sandbox.Wrap(err, op, spec.ID)
	}
	b, err := d.make(ctx, spec, rec)
	if err != nil {
		return nil, sandbox.Wrap(err, op, spec.ID)
	}
	return b, nil
}

// Snapshots implements [driver.SnapshotKeeper].
func (d *Driver) Snapshots(ctx context.Context) ([]string, error) {
	ids, err := d.snapshots.List(ctx)
	return ids, sandbox.Wrap(err, "list snapshots", "")
}

// RemoveSnapshot implements [driver.SnapshotKeeper].
func (d *Driver) RemoveSnapshot(ctx context.Context, id string) error {
	if !sandbox.ValidID(id) {
		return nil // Snapshots does not return such an identifier
	}
	return sandbox.Wrap(d.snapshots.Remove(ctx, id), "remove snapshot", id)
}
