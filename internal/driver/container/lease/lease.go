// Package lease holds the leases of boxes whose guest ends by itself. Such a guest
// is the first process of a container or a Pod, which ends with it.
//
// Only package container imports it, and drivers of containers for the [Grant] of a
// box. A [Holder] belongs to one box in one process. From its first lease on, it
// renews the lease in the background, until Stop. It knows no platform.
package lease

import (
	"context"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// DefaultHold is how long a holder that says nothing more holds a box. It bounds how
// late a guest notices that its holder has ended, and is enough for a renewal on a
// busy machine.
const DefaultHold = time.Minute

// A Grant is what a holder needs for a box, stored with the box's description.
type Grant struct {
	// Key proves to the guest that terms come from a server. It is of use only in
	// the box, and programs of the box never see it.
	Key []byte `json:"key"`
	// Hold is how long the guest waits for the next renewal.
	Hold time.Duration `json:"hold"`
}

// NewGrant returns the grant of a new box, or nil for an attached box, which ends
// with the process that made it. If hold is 0, it is [DefaultHold].
func NewGrant(spec *driver.Spec, hold time.Duration) *Grant {
	if !spec.Detached {
		return nil
	}
	if hold == 0 {
		hold = DefaultHold
	}
	return &Grant{Key: guestapi.NewLeaseKey(), Hold: hold}
}

// A Guest takes the lease of its box, as [guestapi.Client] says.
type Guest interface {
	BeginLease(ctx context.Context, key []byte, t guestapi.LeaseTerms) error
	SetLease(ctx context.Context, key []byte, t guestapi.LeaseTerms) error
}

// A Holder holds one box. Its methods are safe for concurrent use.
type Holder struct {
	grant *Grant // nil if the box has no lease
	guest Guest

	sending chan struct{} // has a value while terms are sent, so that older ones do not follow newer ones

	mu      sync.Mutex
	lease   driver.Lease // the last one; guarded by mu
	end     func()       // ends the renewal, nil before it began; guarded by mu
	stopped bool         // guarded by mu
}

// NewHolder returns a holder that does nothing yet. Boxes of earlier programs have
// no grant, and their guests take no leases.
func NewHolder(g *Grant, guest Guest) *Holder {
	return &Holder{grant: g, guest: guest, sending: make(chan struct{}, 1)}
}

// Begin gives a new guest its key, before any program runs in the box. The box has
// the lease l from then on. If l is nil, it does not end by itself until Set.
func (h *Holder) Begin(ctx context.Context, l *driver.Lease) error {
	if h.grant == nil {
		return nil
	}
	t := guestapi.LeaseTerms{Hold: forever}
	if l != nil {
		t = h.terms(*l)
	}
	if err := h.guest.BeginLease(ctx, h.grant.Key, t); err != nil || l == nil {
		return err
	}
	h.keep(*l)
	return nil
}

// forever is longer than a box lives.
const forever = 100 * 365 * 24 * time.Hour

// Set sets the lease of the box, and makes this process its holder until Stop. The
// error is of kind Unsupported if the guest takes no leases.
func (h *Holder) Set(ctx context.Context, l driver.Lease) error {
	if h.grant == nil {
		return sandbox.Errorf(sandbox.Unsupported, "the box takes no lease")
	}
	h.keep(l)
	return h.send(ctx)
}

// keep has the lease l renewed from now on.
func (h *Holder) keep(l driver.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lease = l
	if h.end == nil && !h.stopped {
		ctx, cancel := context.WithCancel(context.Background())
		h.end = cancel
		go h.renew(ctx)
	}
}

func (h *Holder) terms(l driver.Lease) guestapi.LeaseTerms {
	return guestapi.LeaseTerms{Hold: h.grant.Hold, Idle: l.Idle, Busy: time.Until(l.Busy), End: time.Until(l.End)}
}

// send sends the terms of the last lease.
func (h *Holder) send(ctx context.Context) error {
	select {
	case h.sending <- struct{}{}:
		defer func() { <-h.sending }()
	case <-ctx.Done():
		return ctx.Err()
	}
	h.mu.Lock()
	t := h.terms(h.lease)
	h.mu.Unlock()
	return h.guest.SetLease(ctx, h.grant.Key, t)
}

// renew sends the terms three times in each hold, until ctx ends.
func (h *Holder) renew(ctx context.Context) {
	every := time.NewTicker(h.grant.Hold / 3)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		ask, stop := context.WithTimeout(ctx, h.grant.Hold/3)
		_ = h.send(ask) // the next try may succeed; the engine notices a box that is gone
		stop()
	}
}

// Stop ends the renewal, and does not wait for that. The box lives on for its hold
// and its lease.
func (h *Holder) Stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = true
	if h.end != nil {
		h.end()
	}
}
