package engine

import (
	"context"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// expiresLocked returns when the sandbox stops if nothing uses it from now on. b.mu is
// held.
func (b *liveSandbox) expiresLocked() time.Time {
	s := b.rec.Sandbox
	if b.uses > 0 {
		s.Used = b.e.now()
	}
	return verdict.WithExpiry(s).Expires
}

// watchLease arms the timer that stops the sandbox when it expires.
func (b *liveSandbox) watchLease() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rearmLocked()
}

// rearmLocked sets the lease timer to when the sandbox expires if nothing uses it until
// then. Uses do not reset the timer: expire checks when it fires. b.mu is held.
func (b *liveSandbox) rearmLocked() {
	if !b.livesLocked() {
		return
	}
	at := b.expiresLocked()
	if b.hibernatesAtEndLocked() && b.rec.Ends.Before(at) {
		at = b.rec.Ends
	}
	left := at.Sub(b.e.now())
	b.lease.set(max(left, time.Millisecond), func() { b.e.spawn(b.expire) })
}

// leaseTime bounds how long a driver may take to hear of a lease.
const leaseTime = 10 * time.Second

// tellLease tells the driver when the box ends if no process holds it any more. The
// driver must hear of every change before the caller that asked for the change does.
func (b *liveSandbox) tellLease(ctx context.Context) {
	if !b.rec.Detached {
		return
	}
	b.leasing.Lock()
	defer b.leasing.Unlock()
	b.mu.Lock()
	l := b.driverLeaseLocked()
	b.mu.Unlock()
	// The box may end too early if the driver does not hear of the change. So the
	// caller's end does not stop this, but a driver that hangs must not hold the caller.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseTime)
	defer cancel()
	if _, err := driver.SetLease(ctx, b.drv, l); err != nil && !driver.IsGone(err) {
		b.e.log.Warn("set lease of box", "sandbox", b.id, "error", err)
	}
}

// driverLeaseLocked returns the lease of the sandbox for its driver. b.mu is held.
func (b *liveSandbox) driverLeaseLocked() driver.Lease {
	s := b.rec.Sandbox
	l := driver.Lease{End: s.Created.Add(s.Limits.Lifetime), Idle: s.Limits.Idle, Busy: b.busyUntil}
	switch {
	case s.State == sandbox.Hibernated:
		l.Idle = s.Limits.Lifetime
	case !s.AtEnd.Hibernates() && !s.Ends.IsZero() && s.Ends.Before(l.End):
		l.End = s.Ends
	}
	return l
}

// BusyFor records a run that lasts for d at most, and tells the driver if the idle
// limit does not cover the run, as it does most runs.
func (b *liveSandbox) BusyFor(ctx context.Context, d time.Duration) {
	b.mu.Lock()
	until := b.e.now().Add(d)
	longer := d > b.rec.Limits.Idle && until.After(b.busyUntil)
	if longer {
		b.busyUntil = until
	}
	b.mu.Unlock()
	if longer {
		b.tellLease(ctx)
	}
}

// leaseLeft returns how long the sandbox has until it expires.
func (b *liveSandbox) leaseLeft() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.expiresLocked().Sub(b.e.now())
}

// expire stops the sandbox if it has expired, and otherwise arms the timer again.
func (b *liveSandbox) expire() {
	b.mu.Lock()
	now := b.e.now()
	why, over := verdict.Expired(b.rec.Sandbox, b.uses > 0, now)
	if !over && b.hibernatesAtEndLocked() && !now.Before(b.rec.Ends) {
		b.mu.Unlock()
		b.hibernateAtEnd()
		return
	}
	if !over {
		b.rearmLocked()
		b.mu.Unlock()
		return
	}
	b.mu.Unlock()
	if err := b.Stop(context.WithoutCancel(b.e.ctx), why); err != nil {
		b.e.log.Error("stop expired sandbox", "sandbox", b.id, "error", err)
	}
}

// hibernatesAtEndLocked reports whether the sandbox hibernates at its end.
// b.mu is held.
func (b *liveSandbox) hibernatesAtEndLocked() bool {
	return b.rec.AtEnd.Hibernates() && !b.rec.Ends.IsZero() && b.rec.State != sandbox.Hibernated
}
