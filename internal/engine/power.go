package engine

import (
	"context"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
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

// wake resumes the sandbox if it is paused.
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
		err = sandbox.Wrap(err, "wake sandbox", "")
		if driver.IsGone(err) {
			return b.gone(sandbox.Errorf(sandbox.Unavailable, "%w", err))
		}
		return err
	}
	if b.saved {
		b.e.log.Info("sandbox woke from disk", "sandbox", b.id)
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
	if hibernates && b.e.opts.SaveHibernated && b.e.drv.Info().Features.Save && b.saveOnDisk(ctx) {
		return
	}
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

// saveOnDisk saves a sandbox that hibernates on disk, and reports whether it did. If
// it cannot, the sandbox hibernates in memory, and the log says why. b.power is held.
func (b *liveSandbox) saveOnDisk(ctx context.Context) bool {
	saved, err := driver.Save(ctx, b.drv)
	if err != nil {
		b.e.log.Warn("sandbox hibernates in memory, because it cannot be saved on disk", "sandbox", b.id, "error", err)
		return false
	}
	b.e.log.Info("sandbox hibernates on disk", "sandbox", b.id, "bytes", saved.Bytes, "stood", saved.Stood)
	b.paused, b.saved = true, true
	b.mount.Rests(b)
	return true
}

// pauseTimeout bounds pausing and resuming a box.
func (e *Engine) pauseTimeout() time.Duration {
	if f := e.drv.Info().Features; f.ColdPause || f.Save && e.opts.SaveHibernated {
		return coldPauseTimeout
	}
	return warmPauseTimeout
}
