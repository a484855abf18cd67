package docker

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/moby/moby/client"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A box is a container with the name of the sandbox.
type box struct {
	d    *Driver
	e    *engine
	kept *kept

	guest *guestapi.Client // for the driver's own questions

	mu       sync.Mutex
	carrier  *guestapi.Carrier // nil until the first use; guarded by mu
	released bool              // guarded by mu
	// link is nil without a network, or if another process has the link; guarded by mu.
	link *link
	// The connections of a network that was taken over are numbered from base on.
	takenOver, based bool  // guarded by mu
	base             int64 // guarded by mu

	changing sync.Mutex // held while the policy changes
}

var (
	_ driver.Box      = (*box)(nil)
	_ driver.Reporter = (*box)(nil)

	_ driver.Networker = (*box)(nil)
)

// newBox returns a box that holds its connections until it is released.
func (d *Driver) newBox(e *engine, k *kept) *box {
	b := &box{d: d, e: e, kept: k}
	b.guest = guestapi.NewClient(b.dial)
	d.mu.Lock()
	d.boxes[b] = true
	d.mu.Unlock()
	return b
}

// adopt makes c the carrier of the streams to the guest.
func (b *box) adopt(c *guestapi.Carrier) {
	b.mu.Lock()
	b.carrier = c
	b.mu.Unlock()
}

// release closes the connections of b. It is idempotent.
func (b *box) release() {
	b.d.mu.Lock()
	delete(b.d.boxes, b)
	b.d.mu.Unlock()
	b.mu.Lock()
	c, l := b.carrier, b.link
	b.carrier, b.link, b.released = nil, nil, true
	b.mu.Unlock()
	l.close()
	b.guest.Close()
	if c != nil {
		c.Close()
	}
}

// Ref implements [driver.Box].
func (b *box) Ref() string { return b.kept.Spec.ID }

// Dial implements [driver.Box].
func (b *box) Dial(ctx context.Context) (net.Conn, error) {
	conn, err := b.dial(ctx)
	return conn, sandbox.Wrap(err, "dial box", b.Ref())
}

func (b *box) dial(ctx context.Context) (net.Conn, error) {
	for again := false; ; again = true {
		c, fresh, err := b.carry(ctx)
		if err != nil {
			return nil, err
		}
		conn, err := c.Dial(ctx)
		if err == nil {
			return conn, nil
		}
		if ctx.Err() != nil {
			return nil, err
		}
		select {
		case <-c.Done():
			if fresh || again {
				return nil, b.orGone(ctx, err)
			}
		default:
			return nil, b.orGone(ctx, err)
		}
	}
}

// carry returns the carrier of the streams to the guest. If there is none, it makes
// one from a relay that the engine executes in the box; fresh is then true.
func (b *box) carry(ctx context.Context) (c *guestapi.Carrier, fresh bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.released {
		// The box was destroyed or its driver was closed: report which.
		return nil, false, b.state(ctx)
	}
	if b.carrier != nil {
		select {
		case <-b.carrier.Done():
			b.carrier.Close()
			b.carrier = nil
		default:
			return b.carrier, false, nil
		}
	}
	io, err := b.relay(ctx)
	if err != nil {
		return nil, false, err
	}
	b.carrier = guestapi.NewCarrier(io)
	return b.carrier, true, nil
}

// relay has the engine execute a relay in the box.
func (b *box) relay(ctx context.Context) (net.Conn, error) {
	made, err := b.e.ExecCreate(ctx, b.Ref(), client.ExecCreateOptions{
		User: "0:0", Cmd: []string{guestPath, "relay"}, WorkingDir: "/",
		AttachStdin: true, AttachStdout: true, AttachStderr: true,
	})
	if err != nil {
		return nil, b.e.explainBox(err)
	}
	at, err := b.e.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
	if err != nil {
		return nil, b.e.explainBox(err)
	}
	return newStdio(at.HijackedResponse), nil
}

// state returns the error for a released box: the box is gone, or its driver no
// longer serves it.
func (b *box) state(ctx context.Context) error {
	e, err := b.d.connect(ctx)
	if err != nil {
		return err
	}
	c, err := b.d.inspect(ctx, e, b.Ref())
	if err != nil {
		return err
	}
	if c.State == nil || !c.State.Running {
		return driver.ErrGone
	}
	return sandbox.Errorf(sandbox.Conflict, "this box was destroyed, or its driver closed")
}

// orGone returns err, wrapped in ErrGone if the box is gone. It waits a moment,
// because the container of a guest that has just died ends slightly later.
func (b *box) orGone(ctx context.Context, err error) error {
	for deadline := time.Now().Add(goneTime); ; {
		c, ierr := b.d.inspect(ctx, b.e, b.Ref())
		if driver.IsGone(ierr) || ierr == nil && (c.State == nil || !c.State.Running) {
			return fmt.Errorf("%w: %w", driver.ErrGone, err)
		}
		if ierr != nil || time.Now().After(deadline) || sleep(ctx, 20*time.Millisecond) != nil {
			return err
		}
	}
}

const (
	// goneTime bounds how long a container may still run after its guest has ended.
	goneTime = 300 * time.Millisecond
	// askTime bounds how long a guest may take to report its limits.
	askTime = 20 * time.Second
	// incidentTime bounds how long a guest may take to report its counts.
	incidentTime = 2 * time.Second
)

// Receipt implements [driver.Box].
func (b *box) Receipt(ctx context.Context) (sandbox.Receipt, error) {
	ask, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	in, err := b.guest.Limits(ask)
	if err != nil {
		return nil, sandbox.Wrap(b.orGone(ctx, err), "read receipt of box", b.Ref())
	}
	return b.receiptOf(in, b.networkInForce(ctx)), nil
}

// Incidents implements [driver.Reporter].
func (b *box) Incidents(ctx context.Context) (driver.Incidents, error) {
	c, err := b.d.inspect(ctx, b.e, b.Ref())
	if driver.IsGone(err) {
		return driver.Incidents{}, nil
	}
	if err != nil {
		return driver.Incidents{}, sandbox.Wrap(err, "read incidents of box", b.Ref())
	}
	in := driver.Incidents{Alive: c.State != nil && c.State.Running}
	if !in.Alive {
		if c.State != nil && c.State.OOMKilled {
			in.MemoryKills = 1
		}
		return in, nil
	}
	ask, cancel := context.WithTimeout(ctx, incidentTime)
	defer cancel()
	l, err := b.guest.Limits(ask)
	if err != nil {
		if ctx.Err() == nil {
			return in, nil // the guest is alive, and too busy to answer
		}
		return in, sandbox.Wrap(err, "read incidents of box", b.Ref())
	}
	in.MemoryKills, in.ProcessRefusals = l.Group.MemoryKills, l.Group.ProcessRefusals
	return in, nil
}

// Destroy implements [driver.Box].
func (b *box) Destroy(ctx context.Context) error {
	b.release()
	err := b.d.remove(ctx, b.e, b.Ref())
	return sandbox.Wrap(err, "destroy box", b.Ref())
}
