package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/container/lease"
	"github.com/glovebox-dev/glovebox/internal/driver/container/stdio"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Platform makes the calls of one box to the container engine or the cluster that
// runs its container. Its methods are safe for concurrent use.
type Platform interface {
	// Usable returns an error if the driver is closed or the platform does not
	// answer.
	Usable(ctx context.Context) error
	// State returns the state of the container ref. The error wraps
	// [driver.ErrGone] if there is none in this state directory.
	State(ctx context.Context, ref string) (State, error)
	// Relay executes the guest's program with [RelayArgs] in the container ref, as
	// root. It returns its streams.
	Relay(ctx context.Context, ref string) (net.Conn, error)
	// Snapshot keeps the files of the box of a record as the snapshot id.
	Snapshot(ctx context.Context, rec *Record, id string, pack Packer) (driver.Snapshot, error)
	// Remove removes all containers and files of the box ref.
	Remove(ctx context.Context, ref string) error
}

// An Ender is a Platform whose reports come late. AwaitEnd returns the state of the
// container ref when it has ended, or its state after a time that the platform
// chooses. Its errors are those of State.
type Ender interface {
	AwaitEnd(ctx context.Context, ref string) (State, error)
}

// Streams are the standard input and output of the guest, of a relay or of a tunnel.
type Streams = stdio.Streams

// A State is the state of a container.
type State struct {
	Running bool
	// OOMKilled means that the host kernel killed the container for its memory.
	OOMKilled bool
	// CPUs and MemoryBytes are limits that the platform says are in force. They are
	// zero if the platform does not say. Source describes where they come from.
	CPUs        float64
	MemoryBytes int64
	Source      string
}

var (
	// ErrStartFailed is wrapped by errors of a container whose guest does not start.
	// The guest's volume may be damaged.
	ErrStartFailed = sandbox.Errorf(sandbox.Unavailable, "the guest does not start")
	// ErrNoTunnel is wrapped by errors of a box whose guest cannot be its own tunnel.
	ErrNoTunnel = sandbox.Errorf(sandbox.Unsupported, "the guest cannot make its interface")
	// ErrForeignUsers is wrapped by errors of a box whose programs may not write its
	// workspace, because it belongs to another user inside the box.
	ErrForeignUsers = sandbox.Errorf(sandbox.Unsupported, "the engine has users of its own")
)

const (
	// goneTime bounds how long a container may still run after its guest has ended.
	goneTime = 300 * time.Millisecond
	// reachTime bounds the attempts of Reach, and firstPause is its first pause.
	reachTime  = 10 * time.Second
	firstPause = 250 * time.Millisecond
	// askTime bounds how long a guest may take to answer, or to report its limits.
	askTime = 20 * time.Second
	// incidentTime bounds how long a guest may take to report its counts.
	incidentTime = 2 * time.Second
)

// A Boxes holds the boxes of one driver that hold connections. Its methods are safe
// for concurrent use.
type Boxes struct {
	state   *StateDir
	program string

	mu   sync.Mutex
	open map[*Box]bool // guarded by mu
}

// NewBoxes returns the boxes of a state directory. program is the path of the
// program of network processes, or "" if boxes have no network; see
// [network.Start].
func NewBoxes(state *StateDir, program string) *Boxes {
	return &Boxes{state: state, program: program, open: make(map[*Box]bool)}
}

// Add returns a box that holds its connections until it is released. It makes no
// calls.
func (s *Boxes) Add(p Platform, rec *Record) *Box {
	b := &Box{boxes: s, platform: p, rec: rec}
	b.guest = guestapi.NewClient(b.dial)
	b.holder = lease.NewHolder(rec.Lease, b.guest)
	b.network = &boxNetwork{state: s.state, program: s.program, spec: &rec.Spec, linked: rec.linked(), explain: b.orGone}
	s.mu.Lock()
	s.open[b] = true
	s.mu.Unlock()
	return b
}

// Release closes the connections of all boxes, so that attached boxes end.
func (s *Boxes) Release() {
	s.mu.Lock()
	boxes := make([]*Box, 0, len(s.open))
	for b := range s.open {
		boxes = append(boxes, b)
	}
	s.mu.Unlock()
	for _, b := range boxes {
		b.Release()
	}
}

// A Box is a container with the name of the sandbox.
type Box struct {
	boxes    *Boxes
	platform Platform
	rec      *Record
	network  *boxNetwork

	guest  *guestapi.Client // for the driver's own questions
	holder *lease.Holder

	mu       sync.Mutex
	carrier  *guestapi.Carrier // nil until the first use; guarded by mu
	held     io.Closer         // nil unless Hold was called; guarded by mu
	released bool              // guarded by mu
}

var (
	_ driver.Box       = (*Box)(nil)
	_ driver.Reporter  = (*Box)(nil)
	_ driver.Networker = (*Box)(nil)
	_ driver.Leaser    = (*Box)(nil)

	_ driver.DiskSnapshotter = (*Box)(nil)
)

// Begin makes the box usable. Its container was just started, and streams are those
// of its guest, on which no data was sent yet. The box takes the streams over; the
// guest of an attached box lives as long as they do. The tunnel is started if the
// box has a network. Begin returns the receipt for the driver to check.
//
// The error wraps [ErrStartFailed] if the guest does not answer, and
// [ErrForeignUsers] if programs may not write the workspace. It wraps [ErrNoTunnel]
// if the box cannot have its network.
func (b *Box) Begin(ctx context.Context, streams Streams, tunnel Tunnel) (sandbox.Receipt, error) {
	b.mu.Lock()
	b.carrier = guestapi.NewCarrier(streams)
	b.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ask, stop := context.WithTimeout(ctx, askTime)
	defer stop()
	in, err := b.guest.Limits(ask)
	if err != nil {
		if ctx.Err() != nil {
			return nil, errors.Join(ctx.Err(), err)
		}
		return nil, fmt.Errorf("%w: %w: %q", ErrStartFailed, err, streams.Stderr())
	}
	if err := b.checkMounted(ask); err != nil {
		return nil, err
	}
	if err := b.holder.Begin(ask, b.rec.Spec.Lease); err != nil {
		return nil, err
	}
	if b.rec.linked() {
		if in.NoTunnel != "" {
			return nil, tunnel.Explain(fmt.Errorf("%w: %s", ErrNoTunnel, in.NoTunnel))
		}
		if err := b.network.start(ctx, tunnel); err != nil {
			return nil, err
		}
		if in, err = b.guest.Limits(ask); err != nil {
			return nil, err
		}
	}
	return b.receiptOf(ctx, in), nil
}

// receiptOf makes a receipt from the kernel's values and the platform's. A kernel of
// the box's own does not show the limits of the machine around it.
func (b *Box) receiptOf(ctx context.Context, in *guestapi.Limits) sandbox.Receipt {
	r := receiptOf(b.rec, in, b.network.policy(), b.network.inForce(ctx))
	if in.Group.CPUs > 0 && in.Group.MemoryBytes > 0 {
		return r
	}
	s, err := b.platform.State(ctx, b.Ref())
	if err != nil || s.Source == "" {
		return r // it says that they are not enforced
	}
	return fromPlatform(r, &b.rec.Spec.Limits, in.Group, s)
}

// Hold makes the box close c when it is released.
func (b *Box) Hold(c io.Closer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held = c
}

// checkMounted makes sure that programs may write the workspace. If the platform
// maps user IDs, the workspace belongs to another user inside the box.
func (b *Box) checkMounted(ctx context.Context) error {
	if b.rec.Spec.Workspace == "" {
		return nil
	}
	entry, err := b.guest.Stat(ctx, sandbox.WorkDir, guestapi.FileOptions{User: sandbox.Root})
	if err != nil {
		return err
	}
	if entry.Owner != sandbox.User {
		return fmt.Errorf("the workspace belongs to %s in the box, as %w", entry.Owner, ErrForeignUsers)
	}
	return nil
}

// TakeOverNetwork carries the box's network after its server has ended. It does
// nothing if the box has no network, or if another process carries it. If it fails,
// the box reaches nothing.
func (b *Box) TakeOverNetwork(ctx context.Context, tunnel Tunnel) error {
	return b.network.takeOver(ctx, tunnel)
}

// Release closes the connections of b. It is idempotent.
func (b *Box) Release() {
	b.boxes.mu.Lock()
	delete(b.boxes.open, b)
	b.boxes.mu.Unlock()
	b.mu.Lock()
	c, held := b.carrier, b.held
	b.carrier, b.held, b.released = nil, nil, true
	b.mu.Unlock()
	if held != nil {
		held.Close()
	}
	b.holder.Stop()
	b.network.close()
	b.guest.Close()
	if c != nil {
		c.Close()
	}
}

// Ref implements [driver.Box].
func (b *Box) Ref() string { return b.rec.Spec.ID }

// Dial implements [driver.Box].
func (b *Box) Dial(ctx context.Context) (net.Conn, error) {
	conn, err := b.dial(ctx)
	return conn, sandbox.Wrap(err, "dial box", b.Ref())
}

// Answer returns an error if the guest opens no stream. It is bounded, because a node may
// accept a stream to the guest and not carry it.
func (b *Box) Answer(ctx context.Context) error {
	ask, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	conn, err := b.Dial(ask)
	if err == nil {
		return conn.Close()
	}
	if ask.Err() != nil && ctx.Err() == nil {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "the guest did not answer within %v", askTime),
			"try again; if it persists, see whether the node of the sandbox works")
	}
	return err
}

// dial opens a stream to the guest.
func (b *Box) dial(ctx context.Context) (net.Conn, error) {
	e, late := b.platform.(Ender)
	if !late {
		conn, _, err := b.dialOnce(ctx)
		return conn, err
	}
	return Reach(ctx, e, b.Ref(), func() (net.Conn, bool, error) { return b.dialOnce(ctx) })
}

// dialOnce is dial by the carrier that there is, or by a new one. It reports whether the
// stream of a new carrier has ended at once.
func (b *Box) dialOnce(ctx context.Context) (conn net.Conn, lost bool, err error) {
	for again := false; ; again = true {
		c, fresh, err := b.carry(ctx)
		if err != nil {
			return nil, false, err
		}
		conn, err := c.Dial(ctx)
		if err == nil {
			return conn, false, nil
		}
		if ctx.Err() != nil {
			return nil, false, err
		}
		select {
		case <-c.Done():
			if !fresh && !again {
				continue
			}
			if _, late := b.platform.(Ender); late {
				return nil, true, err
			}
		default:
		}
		return nil, false, b.orGone(ctx, err)
	}
}

// Reach calls try until it reaches a container's guest, or fails for another reason than
// that the guest was lost. The guest may have ended, and the platform's report comes
// late. Or a part of the platform starts again. So Reach waits for a report in pauses that
// double, and tries again after each. It begins no try after ten seconds.
func Reach[T any](ctx context.Context, e Ender, ref string, try func() (t T, lost bool, err error)) (T, error) {
	giveUp := time.Now().Add(reachTime)
	for pause := firstPause; ; pause *= 2 {
		t, lost, err := try()
		if !lost {
			return t, err
		}
		last := time.Now().After(giveUp)
		wait, cancel := context.WithTimeout(ctx, pause)
		s, werr := e.AwaitEnd(wait, ref)
		gone := driver.IsGone(werr) || werr == nil && !s.Running
		if !gone {
			<-wait.Done() // also when the platform answers nothing
		}
		cancel()
		switch {
		case gone:
			return t, fmt.Errorf("%w: %w", driver.ErrGone, err)
		case ctx.Err() != nil:
			return t, errors.Join(ctx.Err(), err)
		case last:
			return t, err
		}
	}
}

// carry returns the carrier of the streams to the guest. If there is none, it makes
// one from a relay that the platform executes in the box; fresh is then true.
func (b *Box) carry(ctx context.Context) (c *guestapi.Carrier, fresh bool, err error) {
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
	streams, err := b.platform.Relay(ctx, b.Ref())
	if err != nil {
		return nil, false, err
	}
	b.carrier = guestapi.NewCarrier(streams)
	return b.carrier, true, nil
}

// state returns the error for a released box: the box is gone, or its driver no
// longer serves it.
func (b *Box) state(ctx context.Context) error {
	if err := b.platform.Usable(ctx); err != nil {
		return err
	}
	c, err := b.platform.State(ctx, b.Ref())
	if err != nil {
		return err
	}
	if !c.Running {
		return driver.ErrGone
	}
	return sandbox.Errorf(sandbox.Conflict, "this box was destroyed, or its driver closed")
}

// orGone returns err, wrapped in ErrGone if the box is gone. It waits a moment,
// because the container of a guest that has just died ends slightly later.
func (b *Box) orGone(ctx context.Context, err error) error {
	if e, ok := b.platform.(Ender); ok {
		c, ierr := e.AwaitEnd(ctx, b.Ref())
		if driver.IsGone(ierr) || ierr == nil && !c.Running {
			return fmt.Errorf("%w: %w", driver.ErrGone, err)
		}
		return err
	}
	for deadline := time.Now().Add(goneTime); ; {
		c, ierr := b.platform.State(ctx, b.Ref())
		if driver.IsGone(ierr) || ierr == nil && !c.Running {
			return fmt.Errorf("%w: %w", driver.ErrGone, err)
		}
		if ierr != nil || time.Now().After(deadline) || !sleep(ctx, 20*time.Millisecond) {
			return err
		}
	}
}

// Receipt implements [driver.Box].
func (b *Box) Receipt(ctx context.Context) (sandbox.Receipt, error) {
	ask, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	in, err := b.guest.Limits(ask)
	if err != nil {
		return nil, sandbox.Wrap(b.orGone(ctx, err), "read receipt of box", b.Ref())
	}
	return b.receiptOf(ctx, in), nil
}

// Incidents implements [driver.Reporter].
func (b *Box) Incidents(ctx context.Context) (driver.Incidents, error) {
	c, err := b.platform.State(ctx, b.Ref())
	if driver.IsGone(err) {
		return driver.Incidents{}, nil
	}
	if err != nil {
		return driver.Incidents{}, sandbox.Wrap(err, "read incidents of box", b.Ref())
	}
	in := driver.Incidents{Alive: c.Running}
	if !in.Alive {
		return ended(c), nil
	}
	ask, cancel := context.WithTimeout(ctx, incidentTime)
	defer cancel()
	l, err := b.guest.Limits(ask)
	if err != nil {
		if e, ok := b.platform.(Ender); ok && ctx.Err() == nil {
			if c, err := e.AwaitEnd(ctx, b.Ref()); driver.IsGone(err) || err == nil && !c.Running {
				return ended(c), nil
			}
		}
		if ctx.Err() == nil {
			return in, nil // the guest is alive, and too busy to answer
		}
		return in, sandbox.Wrap(err, "read incidents of box", b.Ref())
	}
	in.MemoryKills, in.ProcessRefusals = l.Group.MemoryKills, l.Group.ProcessRefusals
	return in, nil
}

// ended returns the incidents of a container that has ended.
func ended(c State) driver.Incidents {
	if c.OOMKilled {
		return driver.Incidents{MemoryKills: 1}
	}
	return driver.Incidents{}
}

// SetLease implements [driver.Leaser].
func (b *Box) SetLease(ctx context.Context, l driver.Lease) error {
	err := b.holder.Set(ctx, l)
	if sandbox.KindOf(err) == sandbox.Unavailable {
		err = b.orGone(ctx, err)
	}
	return sandbox.Wrap(err, "set lease of box", b.Ref())
}

// Destroy implements [driver.Box].
func (b *Box) Destroy(ctx context.Context) error {
	b.Release()
	err := b.platform.Remove(ctx, b.Ref())
	return sandbox.Wrap(err, "destroy box", b.Ref())
}

// Traffic implements [driver.Networker].
func (b *Box) Traffic(ctx context.Context, after int64) (sandbox.Traffic, error) {
	return b.network.traffic(ctx, after)
}

// SetNetwork implements [driver.Networker].
func (b *Box) SetNetwork(ctx context.Context, n sandbox.Network, rules []sandbox.Secret) error {
	return b.network.set(ctx, n, rules)
}

// Authority implements [driver.Networker].
func (b *Box) Authority(ctx context.Context) ([]byte, error) { return b.network.authority(ctx) }

// sleep waits, and reports whether ctx is still valid.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
