package gvisor

import (
	"context"
	"errors"
	"io"
	"path/filepath"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/snapfiles"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// SnapshotDisk implements [driver.DiskSnapshotter]. The guest packs the files that changed
// since it started.
func (b *box) SnapshotDisk(ctx context.Context, id string) (driver.Snapshot, error) {
	n, err := b.snapshotDisk(ctx, id)
	return driver.Snapshot{Bytes: n}, sandbox.Wrap(err, "take snapshot of box", b.ref)
}

func (b *box) snapshotDisk(ctx context.Context, id string) (int64, error) {
	if err := b.asleep.take(ctx); err != nil {
		return 0, err
	}
	defer b.asleep.end()
	rep, err := b.via().call(ctx, &message.Request{Op: message.OpReceipt, Ref: b.ref})
	if err != nil {
		return 0, err
	}
	spec := &rep.Report.Record.Spec
	switch {
	case rep.Report.Saved || rep.Report.Paused:
		return 0, sandbox.Errorf(sandbox.Conflict, "the sandbox rests, and must be resumed first")
	case len(spec.Secrets) > 0:
		return 0, sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "a sandbox with secrets or header rules has no snapshots: their values are stored nowhere, so a copy would be without them"),
			"copy the files out")
	case len(spec.Mounts) > 0:
		return 0, sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "a sandbox with several workspaces has no snapshots"), "copy the files out")
	}
	m := snapfiles.Manifest{Root: rep.Report.Record.Root, Workspace: spec.Workspace != ""}
	// Headers of the archive, and holes of files, come in addition to the disk's limit.
	limit := 2*spec.Limits.DiskBytes + 16<<20
	n, err := b.files.Take(id, m, limit, func() (io.ReadCloser, error) {
		return b.guest.Pack(ctx, guestapi.PackOrder{Changed: true})
	})
	if k := sandbox.KindOf(err); err != nil && (k == sandbox.Internal || k == sandbox.Unavailable) && ctx.Err() == nil && !driver.IsGone(err) {
		// The guest ends the archive without a reason.
		err = sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "read the files of the sandbox: %w", err), "programs may have changed them meanwhile: try again")
	}
	return n, err
}

// createFromFiles makes a box that starts afresh with the files of a snapshot.
func (d *Driver) createFromFiles(ctx context.Context, spec *driver.Spec, files *snapfiles.Files) (_ driver.Box, err error) {
	root, done, err := imageRoot(ctx, d.opts.Images, spec.Image)
	if err != nil {
		return nil, err
	}
	defer done()
	name := ""
	if root != nil {
		name = filepath.Base(root.File)
	}
	if err := files.Manifest.CheckFits(spec, name); err != nil {
		return nil, err
	}
	made, err := d.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	b := made.(*box)
	if err = b.guest.Restore(ctx, files); err == nil {
		err = b.cloned(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, b.Destroy(context.WithoutCancel(ctx)))
	}
	return b, nil
}
