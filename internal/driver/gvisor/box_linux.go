package gvisor

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/briefmap"
	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/builds"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/snapfiles"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/state"
)

// box is a box in the driver.
type box struct {
	images *image.Store // nil if there are none
	ref    string
	forget func() // removes the box from those that hold connections
	// ofBuild returns the client whose supervisor is of another build.
	ofBuild func(builds.ID) (*client, error)
	packer  *state.Packer
	files   *snapfiles.Keeper

	guest *guestapi.Client // for the driver's own requests

	// asleep is held while the box is paused, resumed, or awake for a receipt, so
	// that these operations do not undo each other.
	asleep turn

	mu     sync.Mutex
	client *client // of the supervisor that has the box; guarded by mu
	// The unused streams that the guest was started with, or that were dialled ahead.
	// Dial takes from spare, guest takes own.
	spare []net.Conn
	own   net.Conn
	// streams are all open connections to the guest. While the box is saved, it gets no
	// further ones: still is set.
	streams briefmap.Map[*stream, bool]
	still   bool
	ended   *driver.Usage // what the box had used when Destroy ended it
}

// A turn is a lock whose waiters obey a context: a guest that answers late must
// not hold them.
type turn chan struct{}

func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return sandbox.Errorf(sandbox.Unavailable, "wait for another operation on the box: %w", ctx.Err())
	}
}

func (t turn) end() { <-t }

// newBox returns a box that holds its connections until it is released. It calls
// forget then.
func newBox(c *client, images *image.Store, ref string, forget func(*box)) *box {
	b := &box{client: c, images: images, ref: ref, asleep: make(turn, 1)}
	b.forget = func() { forget(b) }
	b.guest = guestapi.NewClient(func(ctx context.Context) (net.Conn, error) {
		return b.dial(ctx, b.takeOwn)
	})
	return b
}

// via returns the client of the supervisor that has the box.
func (b *box) via() *client {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.client
}

// release closes the connections of b. It is idempotent.
func (b *box) release() {
	b.forget()
	b.guest.Close()
	if c := b.takeOwn(); c != nil {
		c.Close()
	}
	for c := b.takeSpare(); c != nil; c = b.takeSpare() {
		c.Close()
	}
}

var (
	_ driver.Box       = (*box)(nil)
	_ driver.Pauser    = (*box)(nil)
	_ driver.Reporter  = (*box)(nil)
	_ driver.Networker = (*box)(nil)
	_ driver.Leaser    = (*box)(nil)
	_ driver.Packer    = (*box)(nil)

	_ driver.Rollbacker      = (*box)(nil)
	_ driver.DiskSnapshotter = (*box)(nil)
	_ driver.Restarter       = (*box)(nil)
	_ driver.SnapshotKeeper  = (*Driver)(nil)
)

func (b *box) Ref() string { return b.ref }

// takeOwn returns the stream for the driver's own requests and clears it; nil if it
// is used.
func (b *box) takeOwn() net.Conn {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.own
	b.own = nil
	return c
}

// takeSpare removes and returns an unused stream for Dial, or nil.
func (b *box) takeSpare() net.Conn {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.spare) == 0 {
		return nil
	}
	c := b.spare[0]
	b.spare = b.spare[1:]
	return c
}

// Dial implements [driver.Box]. The first calls return streams that the guest was
// started with, which saves a process in the box.
func (b *box) Dial(ctx context.Context) (net.Conn, error) {
	return b.dial(ctx, b.takeSpare)
}

func (b *box) dial(ctx context.Context, take func() net.Conn) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if c := take(); c != nil {
		return c, nil
	}
	near, far, err := message.Socketpair()
	if err != nil {
		return nil, err
	}
	defer far.Close()
	if _, err := b.via().call(ctx, &message.Request{Op: message.OpDial, Ref: b.ref}, far); err != nil {
		near.Close()
		return nil, sandbox.Wrap(err, "dial box", b.ref)
	}
	return b.open(near)
}

// Receipt implements [driver.Box]. It resumes a paused box for the duration of the
// call.
func (b *box) Receipt(ctx context.Context) (sandbox.Receipt, error) {
	receipt, err := b.receipt(ctx)
	return receipt, sandbox.Wrap(err, "read receipt of box", b.ref)
}

func (b *box) receipt(ctx context.Context) (_ sandbox.Receipt, err error) {
	if err := b.asleep.take(ctx); err != nil {
		return nil, err
	}
	defer b.asleep.end()
	rep, err := b.via().call(ctx, &message.Request{Op: message.OpReceipt, Ref: b.ref})
	if err != nil {
		return nil, err
	}
	if rep.Report.Saved {
		return nil, sandbox.Errorf(sandbox.Conflict, "the sandbox is saved on disk, and must be resumed first")
	}
	if rep.Report.Paused {
		if _, err := b.via().call(ctx, &message.Request{Op: message.OpResume, Ref: b.ref}); err != nil {
			return nil, err
		}
		defer func() {
			_, perr := b.via().call(context.WithoutCancel(ctx), &message.Request{Op: message.OpPause, Ref: b.ref})
			err = errors.Join(err, perr)
		}()
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	in, err := b.guest.Limits(ctx)
	if err != nil {
		return nil, err
	}
	return report{rep.Report}.receipt(in)
}

// askTime bounds how long a guest may take to report its limits.
const askTime = 10 * time.Second

func (b *box) Incidents(ctx context.Context) (driver.Incidents, error) {
	rep, err := b.via().call(ctx, &message.Request{Op: message.OpIncidents, Ref: b.ref})
	if err != nil {
		return driver.Incidents{}, sandbox.Wrap(err, "read incidents of box", b.ref)
	}
	return rep.Incidents, nil
}

// Usage implements [driver.Meter].
func (b *box) Usage(ctx context.Context) (driver.Usage, error) {
	b.mu.Lock()
	ended := b.ended
	b.mu.Unlock()
	if ended != nil {
		return *ended, nil
	}
	return b.via().usage(ctx, b.ref)
}

// Traffic implements [driver.Networker].
func (b *box) Traffic(ctx context.Context, after int64) (sandbox.Traffic, error) {
	rep, err := b.via().call(ctx, &message.Request{Op: message.OpTraffic, Ref: b.ref, After: after})
	if err != nil {
		return sandbox.Traffic{}, sandbox.Wrap(err, "read traffic of box", b.ref)
	}
	return *rep.Traffic, nil
}

// Authority implements [driver.Networker].
func (b *box) Authority(ctx context.Context) ([]byte, error) {
	rep, err := b.via().call(ctx, &message.Request{Op: message.OpAuthority, Ref: b.ref})
	if err != nil {
		return nil, sandbox.Wrap(err, "read authority of box", b.ref)
	}
	return rep.Authority, nil
}

// SetNetwork implements [driver.Networker].
func (b *box) SetNetwork(ctx context.Context, n sandbox.Network, rules []sandbox.Secret) error {
	if err := n.CheckCanonical(); err != nil {
		return err
	}
	req := &message.Request{Op: message.OpSetNetwork, Ref: b.ref, Network: n, Rules: rules, Ruled: rules != nil, Secrets: secretValues(rules)}
	_, err := b.via().call(ctx, req)
	return sandbox.Wrap(err, "change network of box", b.ref)
}

func (b *box) Pause(ctx context.Context) error {
	if err := b.asleep.take(ctx); err != nil {
		return sandbox.Wrap(err, "pause box", b.ref)
	}
	defer b.asleep.end()
	_, err := b.via().call(ctx, &message.Request{Op: message.OpPause, Ref: b.ref})
	return sandbox.Wrap(err, "pause box", b.ref)
}

func (b *box) Resume(ctx context.Context) error {
	if err := b.asleep.take(ctx); err != nil {
		return sandbox.Wrap(err, "resume box", b.ref)
	}
	defer b.asleep.end()
	rep, err := b.via().call(ctx, &message.Request{Op: message.OpResume, Ref: b.ref})
	if err == nil && rep.Order != nil {
		err = b.resumeSaved(ctx, rep)
	}
	return sandbox.Wrap(err, "resume box", b.ref)
}

// SetLease implements [driver.Leaser].
func (b *box) SetLease(ctx context.Context, l driver.Lease) error {
	return sandbox.Wrap(b.via().setLease(ctx, b.ref, l), "set lease of box", b.ref)
}

// Destroy implements [driver.Box]. The supervisor completes it even if ctx ends.
func (b *box) Destroy(ctx context.Context) error {
	b.release()
	b.via().forgetLease(b.ref)
	rep, err := b.via().call(ctx, &message.Request{Op: message.OpDestroy, Ref: b.ref})
	if err == nil && rep.Usage != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.ended = rep.Usage
	}
	return sandbox.Wrap(err, "destroy box", b.ref)
}
