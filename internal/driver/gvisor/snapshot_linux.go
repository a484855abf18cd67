package gvisor

import (
	"context"
	"errors"
	"net"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/trace"
)

// Snapshot implements [driver.Snapshotter].
func (b *box) Snapshot(ctx context.Context, id string) (driver.Snapshot, error) {
	if err := b.asleep.take(ctx); err != nil {
		return driver.Snapshot{}, sandbox.Wrap(err, "take snapshot of box", b.ref)
	}
	defer b.asleep.end()
	b.closeStreams()
	defer b.allowStreams()
	c := b.via()
	rep, err := c.call(ctx, c.saves(&message.Request{Op: message.OpSnapshot, Ref: b.ref, Snapshot: id}))
	if err != nil {
		return driver.Snapshot{}, sandbox.Wrap(err, "take snapshot of box", b.ref)
	}
	return *rep.Snapshot, nil
}

// Rollback implements [driver.Rollbacker]. The box is saved first, so that it can go
// on if the snapshot does not fit.
func (b *box) Rollback(ctx context.Context, id string) error {
	if b.files.Has(id) {
		return sandbox.Wrap(driver.NoRollback(), "roll back box", b.ref)
	}
	if err := b.asleep.take(ctx); err != nil {
		return sandbox.Wrap(err, "roll back box", b.ref)
	}
	defer b.asleep.end()
	return sandbox.Wrap(b.rollback(ctx, id), "roll back box", b.ref)
}

func (b *box) rollback(ctx context.Context, id string) (err error) {
	b.closeStreams()
	defer b.allowStreams()
	c := b.via()
	if _, err := c.call(ctx, c.saves(&message.Request{Op: message.OpSave, Ref: b.ref})); err != nil {
		return err
	}
	// From here on the box must not stay saved, also if the caller leaves.
	after := context.WithoutCancel(ctx)
	rep, err := b.via().call(after, &message.Request{Op: message.OpResume, Ref: b.ref})
	if err != nil {
		return err
	}
	if rep.Order == nil {
		return sandbox.Errorf(sandbox.Conflict, "the sandbox is in use")
	}
	if err := b.restore(after, rep.Order, id); err != nil {
		if driver.IsGone(err) {
			return err
		}
		return errors.Join(err, b.restore(after, rep.Order, ""))
	}
	b.allowStreams()
	return b.cloned(after)
}

// CreateFrom implements [driver.SnapshotKeeper].
func (d *Driver) CreateFrom(ctx context.Context, spec *driver.Spec, snapshot string) (driver.Box, error) {
	const op = "create box"
	if d.files.Has(snapshot) {
		files, err := d.files.Open(snapshot)
		if err != nil {
			return nil, sandbox.Wrap(err, op, spec.ID)
		}
		defer files.Close()
		b, err := d.createFromFiles(ctx, spec, files)
		return b, sandbox.Wrap(err, op, spec.ID)
	}
	b, err := d.createFrom(ctx, spec, snapshot)
	if err != nil {
		return nil, sandbox.Wrap(err, op, spec.ID)
	}
	return b, nil
}

func (d *Driver) createFrom(ctx context.Context, spec *driver.Spec, snapshot string) (*box, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := spec.Network.CheckCanonical(); err != nil {
		return nil, err
	}
	root, done, err := imageRoot(ctx, d.opts.Images, spec.Image)
	if err != nil {
		return nil, err
	}
	defer done()
	if spec.Detached && spec.Lease != nil {
		d.client.keepLease(spec.ID, *spec.Lease)
	}
	req := &message.Request{Op: message.OpCreateFrom, Ref: spec.ID, Spec: spec, Snapshot: snapshot, Root: root, Secrets: secretValues(spec.Secrets), Trace: trace.On(ctx)}
	b := d.newBox(spec.ID)
	rep, err := d.client.create(ctx, req, spec, nil)
	if err == nil && rep.Build != nil {
		var old *client
		if old, err = d.ofBuild(*rep.Build); err == nil {
			b.move(d.client, old)
			rep, err = old.create(ctx, req, spec, nil)
		}
	}
	if err == nil && rep.Build != nil {
		err = sandbox.Errorf(sandbox.Unavailable, "the snapshot is of another build of Glovebox than its files say")
	}
	if err != nil {
		b.via().forgetLease(spec.ID)
		b.release()
		return nil, err
	}
	trace.Adopt(ctx, rep.Spans)
	if err = trace.Do(ctx, "tell programs", b.cloned); err == nil {
		err = b.dialAhead(ctx, max(1, spec.Streams))
	}
	if err != nil {
		return nil, errors.Join(err, b.Destroy(context.WithoutCancel(ctx)))
	}
	return b, nil
}

// dialAhead opens streams for the first calls of Dial. The caller of a box that rested
// then need not wait for the process that connects to the guest.
func (b *box) dialAhead(ctx context.Context, n int) error {
	for range n {
		c, err := b.dial(ctx, func() net.Conn { return nil })
		if err != nil {
			return err
		}
		b.mu.Lock()
		b.spare = append(b.spare, c)
		b.mu.Unlock()
	}
	return nil
}

// cloned tells the guest that it has the state of a snapshot.
func (b *box) cloned(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return b.guest.Cloned(ctx)
}

// Snapshots implements [driver.SnapshotKeeper].
func (d *Driver) Snapshots(ctx context.Context) ([]string, error) {
	rep, err := d.client.call(ctx, &message.Request{Op: message.OpSnapshots})
	if err != nil {
		return nil, sandbox.Wrap(err, "list snapshots", "")
	}
	return rep.Refs, nil
}

// RemoveSnapshot implements [driver.SnapshotKeeper].
func (d *Driver) RemoveSnapshot(ctx context.Context, id string) error {
	if !sandbox.ValidID(id) {
		return nil // Snapshots does not return such an identifier
	}
	_, err := d.client.call(ctx, &message.Request{Op: message.OpRemoveSnapshot, Ref: id})
	return sandbox.Wrap(err, "remove snapshot", id)
}
