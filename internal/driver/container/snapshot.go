package container

import (
	"context"
	"io"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Packer returns an archive of files of a box.
type Packer func(context.Context, guestapi.PackOrder) (io.ReadCloser, error)

// SnapshotDisk implements [driver.DiskSnapshotter].
func (b *Box) SnapshotDisk(ctx context.Context, id string) (driver.Snapshot, error) {
	const op = "take snapshot of box"
	if !sandbox.ValidID(id) {
		return driver.Snapshot{}, sandbox.Wrap(sandbox.Errorf(sandbox.Invalid, "%q is not the identifier of a snapshot", id), op, b.Ref())
	}
	if len(b.rec.Spec.Secrets) > 0 {
		err := sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "a sandbox with secrets or header rules has no snapshots: their values are stored nowhere, so a copy would be without them"),
			"copy the files out")
		return driver.Snapshot{}, sandbox.Wrap(err, op, b.Ref())
	}
	s, err := b.platform.Snapshot(ctx, b.rec, id, b.guest.Pack)
	if k := sandbox.KindOf(err); err != nil && (k == sandbox.Unavailable || k == sandbox.Conflict) {
		err = b.orGone(ctx, err)
	}
	return s, sandbox.Wrap(err, op, b.Ref())
}

// Restore gives a box that was just made the files of a snapshot. disk is the mode of the
// box that it was taken of.
func (b *Box) Restore(ctx context.Context, disk DiskMode, files io.Reader) error {
	if b.rec.Disk == DiskMemory && disk != DiskMemory {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "the snapshot does not fit: its sandbox could write everywhere, and this one has a read-only root"),
			"use the settings that the snapshot was taken with")
	}
	if err := b.guest.Restore(ctx, files); err != nil {
		return err
	}
	return b.guest.Cloned(ctx)
}
