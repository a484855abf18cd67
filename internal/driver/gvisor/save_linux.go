package gvisor

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/builds"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/state"
	"github.com/glovebox-dev/glovebox/internal/trace"
)

// A stream is a connection to the guest that its box knows. Before a box is saved,
// all of them must have ended.
type stream struct {
	*net.UnixConn
	box *box
}

// open makes a socket to the guest a stream of b, and closes the file.
func (b *box) open(near *os.File) (net.Conn, error) {
	conn, err := message.FileConn(near)
	if err != nil {
		return nil, err
	}
	s := &stream{conn.(*net.UnixConn), b}
	b.mu.Lock()
	still := b.still
	if !still {
		b.streams.Set(s, true)
	}
	b.mu.Unlock()
	if still { // it was dialled before the box stood still
		return nil, errors.Join(sandbox.Errorf(sandbox.Conflict, "the sandbox is being saved"), s.UnixConn.Close())
	}
	return s, nil
}

// Close implements [net.Conn].
func (s *stream) Close() error {
	s.box.mu.Lock()
	s.box.streams.Delete(s)
	s.box.mu.Unlock()
	return s.UnixConn.Close()
}

// closeStreams closes all connections to the guest, and lets no new ones be until
// allowStreams.
func (b *box) closeStreams() {
	b.mu.Lock()
	var open []*stream
	for s := range b.streams {
		open = append(open, s)
	}
	b.spare, b.own, b.still = nil, nil, true
	b.mu.Unlock()
	for _, s := range open {
		s.Close()
	}
}

func (b *box) allowStreams() { b.mu.Lock(); defer b.mu.Unlock(); b.still = false }

// Save implements [driver.Saver].
func (b *box) Save(ctx context.Context) (driver.Saved, error) {
	if err := b.asleep.take(ctx); err != nil {
		return driver.Saved{}, sandbox.Wrap(err, "save box", b.ref)
	}
	defer b.asleep.end()
	b.closeStreams()
	defer b.allowStreams()
	c := b.via()
	rep, err := c.call(ctx, c.saves(&message.Request{Op: message.OpSave, Ref: b.ref}))
	if err != nil {
		return driver.Saved{}, sandbox.Wrap(err, "save box", b.ref)
	}
	return *rep.Saved, nil
}

// Pack implements [driver.Packer].
func (b *box) Pack(ctx context.Context) (int64, error) {
	n, err := b.packer.Pack(ctx, message.StateDir(b.via().stateDir, b.ref), b.ref)
	return n, sandbox.Wrap(err, "pack state of box", b.ref)
}

// resumeSaved resumes a saved box, whose order is in the reply to the request that was
// to resume it.
func (b *box) resumeSaved(ctx context.Context, order *message.Reply) error {
	if order.Build != nil {
		old, err := b.ofBuild(*order.Build)
		if err != nil {
			return err
		}
		b.move(b.via(), old)
	}
	return b.restore(ctx, order.Order, "")
}

// restore resumes a saved box, or gives it the state of a snapshot if that is not "".
// spec is its order.
func (b *box) restore(ctx context.Context, spec *driver.Spec, snapshot string) error {
	root, done, err := imageRoot(ctx, b.images, spec.Image)
	if err != nil {
		return err
	}
	defer done()
	rep, err := b.via().create(ctx, &message.Request{Op: message.OpRestore, Ref: b.ref, Snapshot: snapshot, Root: root, Trace: trace.On(ctx)}, spec, nil)
	if err != nil {
		return err
	}
	trace.Adopt(ctx, rep.Spans)
	return nil
}

// move gives the box to the supervisor of another client, with its lease.
func (b *box) move(from, to *client) {
	b.mu.Lock()
	b.client = to
	b.mu.Unlock()
	if l, ok := from.leaseOf(b.ref); ok {
		from.forgetLease(b.ref)
		to.keepLease(b.ref, l) // the engine sets it again when the box is awake
	}
}

// ofBuild returns the client of a supervisor that a kept build runs.
func (d *Driver) ofBuild(id builds.ID) (*client, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errDriverClosed()
	}
	if c := d.others[id]; c != nil {
		return c, nil
	}
	program, guest, err := d.builds().Find(id)
	if err != nil {
		return nil, err
	}
	c := &client{program: program, stateDir: d.opts.StateDir, guest: guest, log: d.opts.Log, key: d.opts.StateKey, encrypt: d.opts.Encrypt, sending: make(turn, 1), leases: map[string]driver.Lease{}}
	d.others[id] = c
	return c, nil
}

func (d *Driver) builds() builds.Set {
	return builds.Set{Dir: filepath.Join(d.opts.StateDir, "gvisor", message.BuildsDir)}
}

func (d *Driver) bases() state.Bases {
	return state.Bases{Dir: filepath.Join(d.opts.StateDir, "gvisor", message.BasesDir)}
}

// Bases implements [driver.BuildKeeper].
func (d *Driver) Bases() (int64, error) { return d.bases().Bytes() }

// Builds implements [driver.BuildKeeper].
func (d *Driver) Builds() ([]driver.Build, error) { return d.builds().List() }
