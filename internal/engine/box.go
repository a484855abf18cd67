package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/mount"
	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// A liveSandbox is a sandbox that this process supervises.
//
// It is starting until ready is closed, then running unless err is set. The
// first stop makes it stopping, until nothing is left of it and the engine
// forgets it.
type liveSandbox struct {
	e   *Engine
	id  string
	env map[string]string // may hold secrets; never changed
	// image is the image that the driver is asked for; the record has the name
	// that people use.
	image string
	// writable are the writable directories that the box is made with.
	writable []string

	ready  chan struct{}
	cancel context.CancelFunc // ends its creation

	// Set before ready is closed, never changed after.
	err   error
	drv   driver.Box
	guest guest
	mount *mount.Mount // nil without a workspace
	copy  *mount.Copy  // nil unless the box has a copy of the workspace
	since time.Time    // when it was ready

	mu       sync.Mutex
	rec      store.Sandbox
	uses     int // uses that keep it awake
	stays    int // number of StayAwake calls in force; they are no uses
	runs     map[string]*run
	forwards map[*forward]struct{}
	ports    int             // number of forwards that are connections to ports
	why      *verdict.Reason // why it stops; nil if it does not
	teardown *teardown
	released bool       // left to the next process
	rest     timer      // pauses the box
	lease    timer      // stops the box
	place    *fair.Hold // among the boxes of this process
	dirty    bool       // rec.Used is newer than the store's
	kills    int        // memory kills counted so far
	variants map[string]int

	networked      bool       // it has a network, even if its policy changed since; never changed
	recording      sync.Mutex // held while the record of its connections is updated
	recordRead     bool       // guarded by recording: lastConnection was read from the store
	lastConnection int64      // likewise

	longLine chan struct{} // has a value while a long event of a run is in memory

	power  sync.Mutex // held while it is paused or resumed
	paused bool       // guarded by power
}

// A teardown is one attempt to destroy a box.
type teardown struct {
	done chan struct{}
	err  error // set before done is closed
}

// isDone reports whether the attempt is over.
func (t *teardown) isDone() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// A timer is a time.AfterFunc that is created at its first use.
type timer struct{ t *time.Timer }

func (t *timer) set(d time.Duration, f func()) {
	if t.t == nil {
		t.t = time.AfterFunc(d, f)
		return
	}
	t.t.Reset(d)
}

func (t *timer) stop() {
	if t.t != nil {
		t.t.Stop()
	}
}

// started reports whether creation has finished without an error.
func (b *liveSandbox) started() bool {
	select {
	case <-b.ready:
		return b.err == nil
	default:
		return false
	}
}

// view returns the sandbox as its owner sees it.
func (b *liveSandbox) view() sandbox.Sandbox {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.rec.Sandbox
	s.Expires = b.expires()
	return s
}

// expires returns when the box stops if nothing uses it from now on. b.mu is
// held.
func (b *liveSandbox) expires() time.Time {
	s := b.rec.Sandbox
	if b.uses > 0 {
		s.Used = b.e.now()
	}
	return withExpiry(s).Expires
}

// withExpiry fills in when a sandbox stops at the latest. A hibernated sandbox
// has no idle timeout: only its lifetime counts.
func withExpiry(s sandbox.Sandbox) sandbox.Sandbox {
	s.Expires = s.Created.Add(s.Limits.Lifetime)
	if s.State == sandbox.Hibernated {
		return s
	}
	if s.AtEnd != sandbox.AtEndHibernate && !s.Ends.IsZero() && s.Ends.Before(s.Expires) {
		s.Expires = s.Ends
	}
	if idle := s.Used.Add(s.Limits.Idle); idle.Before(s.Expires) {
		s.Expires = idle
	}
	return s
}

// use keeps a sandbox awake and alive until release is called.
func (b *liveSandbox) use(ctx context.Context) (release func(), err error) {
	return b.acquire(ctx, b.touch)
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
	if b.err != nil {
		return nil, request.NoSandbox(b.id)
	}
	b.mu.Lock()
	if b.why != nil {
		cause := b.why.Cause
		b.mu.Unlock()
		return nil, request.Stopped(b.id, cause)
	}
	if b.released {
		b.mu.Unlock()
		return nil, request.Closed()
	}
	b.uses++
	b.rest.stop()
	touch()
	hibernated := b.endHibernation()
	b.mu.Unlock()
	release = sync.OnceFunc(func() { b.leave(touch) })
	if err := b.wake(); err != nil {
		release()
		return nil, err
	}
	if hibernated {
		if err := b.recordAwake(ctx); err != nil {
			release()
			return nil, err
		}
	}
	return release, nil
}

// touch records a use. b.mu is held.
func (b *liveSandbox) touch() {
	b.rec.Used = b.e.now()
	b.dirty = true
	b.place.Touch()
}

// release ends a use. leave ends what acquire began, with the same touch.
func (b *liveSandbox) release() { b.leave(b.touch) }

func (b *liveSandbox) leave(touch func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.uses--
	touch()
	b.restLater()
}

// restLater arms the timer that pauses the box, if nothing keeps it awake. b.mu
// is held.
func (b *liveSandbox) restLater() {
	if b.uses == 0 && b.stays == 0 && b.why == nil && !b.released {
		b.rest.set(b.e.opts.RestAfter, func() { b.e.spawn(b.sleep) })
	}
}

// StayAwake keeps a box from being paused until done is called. It fails if the
// box has not started, is paused already, hibernates or stops. The idle time goes on.
func (b *liveSandbox) StayAwake() (done func(), ok bool) {
	if !b.started() {
		return nil, false
	}
	b.power.Lock()
	defer b.power.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.paused || b.rec.State == sandbox.Hibernated || b.why != nil || b.released {
		return nil, false
	}
	b.stays++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.stays--
		b.restLater()
	}, true
}

// wake resumes the box if it is paused.
func (b *liveSandbox) wake() error {
	b.power.Lock()
	defer b.power.Unlock()
	if !b.paused {
		return nil
	}
	ctx, cancel := context.WithTimeout(b.e.ctx, b.e.pauseTimeout())
	defer cancel()
	b.mount.Wakes(b)
	if err := driver.Resume(ctx, b.drv); err != nil {
		b.mount.Rests(b)
		err = fmt.Errorf("wake sandbox: %w", err)
		if driver.IsGone(err) {
			b.lost()
			return sandbox.Errorf(sandbox.Unavailable, "%w", err)
		}
		return err
	}
	b.paused = false
	return nil
}

// sleep pauses the box if nothing uses it, and records when it was last used.
func (b *liveSandbox) sleep() {
	b.power.Lock()
	defer b.power.Unlock()
	b.mu.Lock()
	idle := b.uses == 0 && b.stays == 0 && b.why == nil
	rests := !b.rec.Restless && !b.e.drv.Info().Features.ColdPause || b.rec.State == sandbox.Hibernated
	used, dirty := b.rec.Used, b.dirty
	if idle {
		b.dirty = false
	}
	b.mu.Unlock()
	if !idle {
		return
	}
	// A use that begins from here on waits in wake, since this function holds
	// power.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.e.ctx), b.e.pauseTimeout())
	defer cancel()
	if dirty {
		if err := b.e.store.TouchSandbox(ctx, b.id, used); err != nil {
			b.e.log.Error("record use", "sandbox", b.id, "error", err)
		}
	}
	if b.paused || !rests {
		return
	}
	paused, err := driver.Pause(ctx, b.drv)
	switch {
	case driver.IsGone(err):
		b.lost()
	case err != nil:
		b.e.log.Warn("pause sandbox", "sandbox", b.id, "error", err)
	default:
		if b.paused = paused; paused {
			b.mount.Rests(b)
		}
	}
}

// watchLease arms the timer that stops the box when it expires.
func (b *liveSandbox) watchLease() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rearm()
}

// rearm sets the lease timer to when the box expires if nothing uses it until
// then. Uses do not reset the timer: expire checks when it fires. b.mu is held.
func (b *liveSandbox) rearm() {
	if b.why != nil || b.released {
		return
	}
	at := b.expires()
	if b.hibernatesAtEnd() && b.rec.Ends.Before(at) {
		at = b.rec.Ends
	}
	left := at.Sub(b.e.now())
	b.lease.set(max(left, time.Millisecond), func() { b.e.spawn(b.expire) })
}

// leaseLeft returns how long the box has until it expires.
func (b *liveSandbox) leaseLeft() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.expires().Sub(b.e.now())
}

// expire stops the box if it has expired, and otherwise arms the timer again.
func (b *liveSandbox) expire() {
	b.mu.Lock()
	now := b.e.now()
	why, over := expired(b.rec.Sandbox, b.uses > 0, now)
	if !over && b.hibernatesAtEnd() && !now.Before(b.rec.Ends) {
		b.mu.Unlock()
		b.hibernateAtEnd()
		return
	}
	if !over {
		b.rearm()
		b.mu.Unlock()
		return
	}
	b.mu.Unlock()
	if err := b.Stop(context.WithoutCancel(b.e.ctx), why); err != nil {
		b.e.log.Error("stop expired sandbox", "sandbox", b.id, "error", err)
	}
}

// expired reports whether a sandbox has expired, and why.
func expired(s sandbox.Sandbox, busy bool, now time.Time) (verdict.Reason, bool) {
	if !now.Before(s.Created.Add(s.Limits.Lifetime)) {
		return verdict.Reason{
			Cause: fmt.Sprintf("the sandbox reached its lifetime of %v", s.Limits.Lifetime),
			Code:  sandbox.SandboxLost,
			Next:  "make a new sandbox, with a longer lifetime if the work needs it",
		}, true
	}
	if s.State == sandbox.Hibernated {
		return verdict.Reason{}, false
	}
	if s.AtEnd != sandbox.AtEndHibernate && !s.Ends.IsZero() && !now.Before(s.Ends) {
		return verdict.Reason{
			Cause: "the sandbox reached the end that was set for it",
			Code:  sandbox.SandboxLost,
			Next:  "make a new sandbox, or set a later end in time",
		}, true
	}
	if !busy && !now.Before(s.Used.Add(s.Limits.Idle)) {
		return verdict.Reason{
			Cause: fmt.Sprintf("the sandbox was not used for %v", s.Limits.Idle),
			Code:  sandbox.SandboxLost,
			Next:  "make a new sandbox",
		}, true
	}
	return verdict.Reason{}, false
}

// Stop stops the box, or joins a stop in progress. It returns when nothing is
// left of the box or ctx ends; in the latter case the stop goes on. The first
// reason counts. A later stop tries again after a failed one.
func (b *liveSandbox) Stop(ctx context.Context, why verdict.Reason) error {
	if !b.started() { // the caller of create gets the reason
		b.mu.Lock()
		if b.why == nil && !b.released {
			b.why = &why
		}
		b.mu.Unlock()
	}
	b.cancel()
	select {
	case <-b.ready: // creation ends soon, since its context has ended
	case <-ctx.Done():
		return ctx.Err()
	}
	if b.err != nil {
		return nil
	}
	t := b.beginStop(why)
	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// beginStop begins a stop, unless one is in progress or has succeeded, and
// returns it.
func (b *liveSandbox) beginStop(why verdict.Reason) *teardown {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.teardown; t != nil {
		select {
		case <-t.done:
			if t.err == nil {
				return t
			}
		default:
			return t
		}
	}
	t := &teardown{done: make(chan struct{}), err: request.Closed()}
	if b.released {
		close(t.done) // the next process stops it
		return t
	}
	if b.why == nil {
		b.why = &why
	}
	b.rest.stop()
	b.lease.stop()
	b.teardown = t
	first := *b.why
	works := b.e.work(func() {
		t.err = b.destroy(first)
		close(t.done)
	})
	if !works {
		close(t.done)
	}
	return t
}

// destroy performs a stop.
func (b *liveSandbox) destroy(why verdict.Reason) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.e.ctx), destroyTimeout)
	defer cancel()
	// Another process may find the box gone before it is recorded as stopped.
	noteErr := b.e.store.StoppingSandbox(ctx, b.id, why.Cause)

	b.mu.Lock()
	runs := make([]*run, 0, len(b.runs))
	for _, r := range b.runs {
		runs = append(runs, r)
	}
	b.mu.Unlock()
	for _, r := range runs {
		r.log.Hurry()
	}
	b.readTraffic(ctx)
	if b.copy != nil {
		why = b.endCopy(context.WithoutCancel(ctx), why)
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), destroyTimeout)
		defer cancel()
	}
	if err := b.drv.Destroy(ctx); err != nil && !driver.IsGone(err) {
		return errors.Join(sandbox.Wrap(err, "destroy sandbox", b.id), noteErr)
	}
	if b.copy != nil {
		b.copy.End()
	}
	b.guest.Close()
	if !endWithin(destroyTimeout, runs) { // their streams have ended
		b.e.log.Error("runs of a sandbox that is gone do not end", "sandbox", b.id)
	}
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	_, err := b.e.store.EndSandbox(ctx, b.id, why.Cause, b.e.now(), why.Verdict())
	if err != nil {
		return errors.Join(err, noteErr)
	}
	b.e.log.Info("sandbox stopped", "sandbox", b.id, "cause", why.Cause)
	b.unmount()
	b.e.forget(b)
	return nil
}

// lost begins to clean up after a box that was found dead, and works out why it
// died.
func (b *liveSandbox) lost() {
	b.mu.Lock()
	known := b.why != nil || b.released
	kills := b.kills
	limit := b.rec.Limits.MemoryBytes
	b.mu.Unlock()
	if known {
		return
	}
	b.e.opts.Metrics.SandboxLost()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.e.ctx), cleanupTimeout)
	defer cancel()
	why := verdict.Reason{
		Cause: "the sandbox died",
		Code:  sandbox.SandboxLost,
		Next:  "make a new sandbox and run it again",
	}
	if rec, err := b.e.store.Sandbox(ctx, b.id); err == nil && rec.StopCause != "" {
		why = verdict.Reason{Cause: rec.StopCause, Code: sandbox.Cancelled} // another process stopped it
	} else if in, ok, _ := driver.ReadIncidents(ctx, b.drv); ok && in.MemoryKills > kills {
		why = verdict.Reason{
			Cause: fmt.Sprintf("the sandbox used more than its %s of memory and was killed", sandbox.FormatBytes(limit)),
			Code:  sandbox.OutOfMemory,
			Next:  verdict.NextMemory,
		}
	}
	b.beginStop(why)
}

// dead reports whether the box's guest is certainly gone.
func (b *liveSandbox) dead(ctx context.Context) bool {
	if in, ok, err := driver.ReadIncidents(ctx, b.drv); ok || driver.IsGone(err) {
		return !in.Alive
	}
	return driver.IsGone(b.guest.Health(ctx))
}

// letGo leaves the box to the next process.
func (b *liveSandbox) letGo(ctx context.Context) error {
	b.mu.Lock()
	if t := b.teardown; t != nil {
		b.mu.Unlock()
		select {
		case <-t.done:
			return t.err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	b.released = true
	b.rest.stop()
	b.lease.stop()
	runs := make([]*run, 0, len(b.runs))
	for _, r := range b.runs {
		runs = append(runs, r)
	}
	b.mu.Unlock()
	for _, r := range runs {
		r.letGo()
	}
	if !endWithin(endTimeout, runs) {
		b.guest.Close() // which ends their streams
		if !endWithin(endTimeout, runs) {
			b.e.log.Error("runs of a sandbox do not end their streams", "sandbox", b.id)
		}
	}
	if b.copy != nil {
		b.endCopy(ctx, verdict.Reason{})
		b.copy.End()
	}
	b.sleep()
	b.guest.Close()
	b.unmount()
	b.e.forget(b)
	return nil
}
