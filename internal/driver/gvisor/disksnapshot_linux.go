package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/snapfiles"
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
	rec, err := b.withFiles(ctx)
	if err != nil {
		return 0, err
	}
	m := snapfiles.Manifest{Root: rec.Root, Workspace: rec.Spec.Workspace != ""}
	n, err := b.files.Take(id, m, mostFiles(rec), func() (io.ReadCloser, error) { return b.guest.PackChanged(ctx) })
	return n, packError(ctx, err)
}

// withFiles returns the record of the box if its files can be packed now.
func (b *box) withFiles(ctx context.Context) (*message.Record, error) {
	rep, err := b.via().call(ctx, &message.Request{Op: message.OpReceipt, Ref: b.ref})
	if err != nil {
		return nil, err
	}
	rec := &rep.Report.Record
	switch {
	case rep.Report.Saved || rep.Report.Paused:
		return nil, sandbox.Errorf(sandbox.Conflict, "the sandbox rests, and must be resumed first")
	case len(rec.Spec.Secrets) > 0:
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "a sandbox with secrets or header rules has no snapshots: their values are stored nowhere, so a copy would be without them"),
			"copy the files out")
	case len(rec.Spec.Mounts) > 0:
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "a sandbox with several workspaces has no snapshots"), "copy the files out")
	}
	return rec, nil
}

// mostFiles bounds the archive of a box's files. Its headers, and the holes of files, come
// in addition to the disk's limit.
func mostFiles(rec *message.Record) int64 { return 2*rec.Spec.Limits.DiskBytes + 16<<20 }

// packError explains the error of reading the files of a box. The guest ends the archive
// without a reason.
func packError(ctx context.Context, err error) error {
	if k := sandbox.KindOf(err); err == nil || ctx.Err() != nil || driver.IsGone(err) || k != sandbox.Internal && k != sandbox.Unavailable {
		return err
	}
	return sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "read the files of the sandbox: %w", err), "programs may have changed them meanwhile: try again")
}

// Restart implements [driver.Restarter]. The files are in the state directory until the new
// guest has them.
func (b *box) Restart(ctx context.Context) error {
	if err := b.asleep.take(ctx); err != nil {
		return sandbox.Wrap(err, "restart box", b.ref)
	}
	defer b.asleep.end()
	return sandbox.Wrap(b.restart(ctx), "restart box", b.ref)
}

func (b *box) restart(ctx context.Context) error {
	rec, err := b.withFiles(ctx)
	if err != nil {
		return err
	}
	root, done, err := imageRoot(ctx, b.images, rec.Spec.Image)
	if err != nil {
		return err
	}
	defer done()
	files, err := b.files.Hold(mostFiles(rec), func() (io.ReadCloser, error) { return b.guest.PackChanged(ctx) })
	if err != nil {
		return packError(ctx, err)
	}
	defer files.Close()
	if err := ctx.Err(); err != nil {
		return err
	}
	// From here on the box must get its files, also if the caller leaves.
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), restartTime)
	defer cancel()
	b.closeStreams()
	_, err = b.via().create(after, &message.Request{Op: message.OpRestart, Ref: b.ref, Root: root}, &rec.Spec, nil)
	b.allowStreams()
	if err != nil {
		return err
	}
	if err := b.guest.Restore(after, files); err != nil {
		return fmt.Errorf("%w: it restarted without its files: %w", driver.ErrGone, err)
	}
	return nil
}

// restartTime bounds the part of a restart in which the box has no programs.
const restartTime = 5 * time.Minute

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
