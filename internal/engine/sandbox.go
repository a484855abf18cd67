package engine

import (
	"context"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// started reports whether creation has finished without an error.
func (b *liveSandbox) started() bool {
	select {
	case <-b.ready:
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.state != failed
	default:
		return false
	}
}

// view returns the sandbox as its owner sees it.
func (b *liveSandbox) view() sandbox.Sandbox {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.rec.Sandbox
	s.Expires = b.e.hibernation.Expires(&s, b.expiresLocked())
	return s
}

// use keeps a sandbox awake and alive until release is called.
func (b *liveSandbox) use(ctx context.Context) (release func(), err error) {
	return b.acquire(ctx, b.touchLocked)
}

// peek keeps a sandbox awake until release is called, as use does. It is for
// calls that only read: the idle time goes on.
func (b *liveSandbox) peek(ctx context.Context) (release func(), err error) {
	return b.acquire(ctx, func() {})
}

// acquire implements use and peek, which differ only in touch. It calls touch
// with b.mu held.
func (b *liveSandbox) acquire(ctx context.Context, touch func()) (release func(), err error) {
	select {
	case <-b.ready:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	b.mu.Lock()
	if err := b.refuseLocked(); err != nil {
		b.mu.Unlock()
		return nil, err
	}
	b.uses++
	b.rest.stop()
	touch()
	hibernated := b.endHibernationLocked()
	b.mu.Unlock()
	release = sync.OnceFunc(func() { b.leave(touch) })
	if err := b.wake(); err != nil {
		b.hibernateAgain()
		release()
		return nil, err
	}
	b.mu.Lock()
	hibernated = b.endHibernationLocked() || hibernated // again, after another user's hibernateAgain
	b.mu.Unlock()
	if hibernated {
		if err := b.recordAwake(ctx); err != nil {
			release()
			return nil, err
		}
		b.tellLease(ctx)
	}
	return release, nil
}

// touchLocked records a use. b.mu is held.
func (b *liveSandbox) touchLocked() {
	b.rec.Used = b.e.now()
	b.dirty = true
	b.place.Touch()
}

// release ends a use. leave ends what acquire began, with the same touch.
func (b *liveSandbox) release() { b.leave(b.touchLocked) }

func (b *liveSandbox) leave(touch func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.uses--
	touch()
	b.restLaterLocked()
}

// newLive returns a sandbox that is starting, with one use.
func (e *Engine) newLive(rec store.Sandbox) *liveSandbox {
	rec.Receipt = e.receipts.of(rec.Receipt)
	return &liveSandbox{
		e: e, id: rec.ID, rec: rec, uses: 1,
		ready:  make(chan struct{}),
		cancel: func() {},
	}
}

// moveLocked makes next the state of the sandbox. It refuses a move that may not
// be, and logs it, because that is a bug. b.mu is held.
func (b *liveSandbox) moveLocked(next sandboxState) bool {
	if !b.state.mayBecome(next) {
		b.e.log.Error("a state of a sandbox cannot follow", "sandbox", b.id, "state", b.state, "next", next)
		return false
	}
	b.state = next
	switch next {
	case running:
		b.rec.State = sandbox.Running
	case hibernated:
		b.rec.State = sandbox.Hibernated
	}
	return true
}

// begin ends the start of the sandbox: from here on it can be used.
func (b *liveSandbox) begin() {
	b.traffic = b.newTraffic()
	b.ofRuns = b.newOfRuns()
	b.mu.Lock()
	b.since = b.e.now()
	switch {
	case b.state == cancelled: // a stop came too late to end the start
		b.moveLocked(stopping)
	case b.rec.State == sandbox.Hibernated:
		b.moveLocked(hibernated)
	default:
		b.moveLocked(running)
	}
	b.mu.Unlock()
	close(b.ready)
}

// fail records that the sandbox did not start.
func (b *liveSandbox) fail() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.moveLocked(failed)
}

// livesLocked reports whether the sandbox has started, does not stop, and is
// this process's.
func (b *liveSandbox) livesLocked() bool { return b.state == running || b.state == hibernated }

// stoppedLocked returns the error for a use of a sandbox that stops or has
// stopped, or nil.
func (b *liveSandbox) stoppedLocked() error {
	if b.why == nil {
		return nil
	}
	return request.Stopped(b.id, b.why.Cause)
}

// refuseLocked returns the error for a use of a sandbox that cannot be used, or
// nil.
func (b *liveSandbox) refuseLocked() error {
	if b.state == failed {
		return request.NoSandbox(b.id)
	}
	if err := b.stoppedLocked(); err != nil {
		return err
	}
	if b.state == released {
		return request.Closed()
	}
	return nil
}

// endHibernationLocked makes a hibernated sandbox a running one, and reports
// whether it hibernated. b.mu is held.
func (b *liveSandbox) endHibernationLocked() bool {
	if b.state != hibernated {
		return false
	}
	b.moveLocked(running)
	least := b.e.now().Add(wakeTTL)
	if !b.rec.Ends.IsZero() && b.rec.Ends.Before(least) {
		b.rec.Ends = least
	}
	b.rearmLocked()
	return true
}

// hibernateAgain undoes endHibernationLocked for a sandbox that is still saved.
func (b *liveSandbox) hibernateAgain() {
	b.power.Lock()
	defer b.power.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.saved && b.state == running {
		b.moveLocked(hibernated)
		b.rearmLocked()
	}
}

// recordAwake records in the store that the sandbox no longer hibernates.
func (b *liveSandbox) recordAwake(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.e.store.SetSandboxEnd(ctx, b.id, b.rec.Ends); err != nil {
		return err
	}
	if b.rec.State != sandbox.Running {
		return nil // it hibernates again already
	}
	_, err := b.e.store.HibernatedSandbox(ctx, b.id, false)
	return err
}

// wakeTTL is the least time that a sandbox gets when it is used again after
// hibernating at its end.
const wakeTTL = 5 * time.Minute
