package engine

import (
	"context"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/hibernation"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// restLaterLocked arms the timer that pauses the sandbox, if nothing keeps it
// awake. b.mu is held.
func (b *liveSandbox) restLaterLocked() {
	if dozing, idle := b.idleLocked(); idle && b.livesLocked() {
		after := b.e.opts.RestAfter
		if dozing > 0 {
			after = max(after, dozeAfter)
		}
		b.rest.set(after, func() { b.e.spawn(b.sleep) })
	}
}

// dozeAfter is how long a sandbox with a service stays awake after a request: the
// service may have work left that the request began.
const dozeAfter = time.Second

// idleLocked reports whether nothing keeps the sandbox awake, and how many services
// would go on when it wakes. b.mu is held.
func (b *liveSandbox) idleLocked() (dozing int, idle bool) {
	for _, r := range b.runs { // each has a use
		if r.Dozes() {
			dozing++
		}
	}
	return dozing, b.uses == dozing && b.stays == 0
}

// StayAwake keeps a sandbox from being paused until done is called. It fails if
// the sandbox has not started, is paused already, hibernates or stops. The idle
// time goes on.
func (b *liveSandbox) StayAwake() (done func(), ok bool) {
	if !b.started() {
		return nil, false
	}
	b.power.Lock()
	defer b.power.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.paused || b.state != running {
		return nil, false
	}
	b.stays++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.stays--
		b.restLaterLocked()
	}, true
}

// A waking is one attempt to wake a sandbox. All who use the sandbox meanwhile share it.
type waking struct {
	done chan struct{}
	err  error // set before done is closed
}

// wake resumes the sandbox if it is paused, or joins an attempt to do so. The caller
// has a use, so the sandbox stays awake.
func (b *liveSandbox) wake() error {
	b.mu.Lock()
	w := b.waking
	joins := w != nil
	if !joins {
		w = &waking{done: make(chan struct{})}
		b.waking = w
	}
	b.mu.Unlock()
	if joins {
		<-w.done
		return w.err
	}
	w.err = b.resume()
	b.mu.Lock()
	b.waking = nil
	b.mu.Unlock()
	close(w.done)
	return w.err
}

// resume performs a waking.
func (b *liveSandbox) resume() error {
	b.power.Lock()
	defer b.power.Unlock()
	if !b.paused {
		return nil
	}
	ctx, cancel := context.WithTimeout(b.e.ctx, b.e.pauseTimeout())
	defer cancel()
	if b.saved { // so it gave its place up
		place, err := b.e.places.Find(ctx, b.rec.Principal, b.evict)
		if err != nil {
			return sandbox.Wrap(err, "wake sandbox", "")
		}
		b.occupy(place)
	}
	b.mount.Wakes(b)
	if err := b.keeping(func(k hibernation.Box) error { return b.e.hibernation.Wake(ctx, k) }); err != nil {
		b.mount.Rests(b)
		err = sandbox.Wrap(err, "wake sandbox", "")
		if driver.IsGone(err) {
			return b.gone(sandbox.Errorf(sandbox.Unavailable, "%w", err))
		}
		if b.saved {
			b.occupy(nil)
		}
		return err
	}
	b.paused, b.saved, b.woke = false, false, time.Now()
	if b.envLater {
		if err := b.loadEnv(ctx); err != nil {
			return err
		}
		b.envLater = false
	}
	return nil
}

// keeping calls f with the sandbox for the keeper of saved sandboxes. b.power is held.
func (b *liveSandbox) keeping(f func(hibernation.Box) error) error {
	b.mu.Lock()
	h := b.rec.Hibernation
	b.mu.Unlock()
	err := f(hibernation.Box{ID: b.id, Principal: b.rec.Principal, Driver: b.drv, Hibernation: &h})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rec.Hibernation = h
	return err
}

// wokeSince reports whether the sandbox was resumed within a duration.
func (b *liveSandbox) wokeSince(d time.Duration) bool {
	b.power.Lock()
	defer b.power.Unlock()
	return time.Since(b.woke) < d
}

// sleep pauses the sandbox if nothing uses it, and records when it was last used.
func (b *liveSandbox) sleep() {
	b.power.Lock()
	defer b.power.Unlock()
	b.mu.Lock()
	_, idle := b.idleLocked()
	idle = idle && b.why == nil
	hibernates := b.rec.State == sandbox.Hibernated
	rests := !b.rec.Restless && !b.e.drv.Info().Features.ColdPause || hibernates
	b.mu.Unlock()
	if !idle {
		return
	}
	// A use that begins from here on waits in wake, since this function holds
	// power.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.e.ctx), b.e.pauseTimeout())
	defer cancel()
	b.recordUse(ctx)
	if b.paused || !rests {
		return
	}
	if hibernates && b.e.hibernation.Disk && b.saveOnDisk(ctx) == nil {
		return
	}
	b.pause(ctx)
}

// recordUse records when the sandbox was last used.
func (b *liveSandbox) recordUse(ctx context.Context) {
	b.mu.Lock()
	used, dirty := b.rec.Used, b.dirty
	b.dirty = false
	b.mu.Unlock()
	if !dirty {
		return
	}
	if err := b.e.store.TouchSandbox(ctx, b.id, used); err != nil {
		b.e.log.Error("record use", "sandbox", b.id, "error", err)
	}
}

// pause pauses the sandbox. b.power is held.
func (b *liveSandbox) pause(ctx context.Context) {
	paused, err := driver.Pause(ctx, b.drv)
	switch {
	case driver.IsGone(err):
		b.Lost()
	case err != nil:
		b.e.log.Warn("pause sandbox", "sandbox", b.id, "error", err)
	default:
		if b.paused = paused; paused {
			b.mount.Rests(b)
		}
	}
}

// pauseTimeout bounds pausing and resuming a box.
func (e *Engine) pauseTimeout() time.Duration {
	if e.features.ColdPause || e.hibernation.Disk {
		return coldPauseTimeout
	}
	return warmPauseTimeout
}
