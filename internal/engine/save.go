package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/hibernation"
	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// saveOnDisk saves the sandbox on disk, where it needs no place. If that fails, the
// sandbox runs on. b.power is held.
func (b *liveSandbox) saveOnDisk(ctx context.Context) error {
	err := b.keeping(func(k hibernation.Box) error { return b.e.hibernation.Save(ctx, k) })
	switch {
	case err == nil:
		b.paused, b.saved = true, true
		b.mount.Rests(b)
		b.occupy(nil)
	case driver.IsGone(err):
		b.Lost()
	case b.paused:
		b.paused = false
		b.mount.Wakes(b)
	}
	return err
}

// errUsed means that a sandbox is not saved, because it is used or cannot hibernate.
var errUsed = sandbox.Errorf(sandbox.Conflict, "the sandbox is used")

// saveIdle saves the sandbox on disk if nothing uses it, and lets it hibernate then.
// Otherwise the error is errUsed.
func (b *liveSandbox) saveIdle(ctx context.Context) error {
	b.power.Lock()
	defer b.power.Unlock()
	b.mu.Lock()
	idle := b.uses == 0 && b.stays == 0 && b.why == nil && (b.state == running || b.state == released && b.rec.State == sandbox.Running)
	rests := !b.rec.Restless
	b.mu.Unlock()
	if !idle || b.saved || b.copy != nil {
		return errUsed
	}
	b.recordUse(ctx)
	if err := b.saveOnDisk(ctx); err != nil {
		if rests && !driver.IsGone(err) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), warmPauseTimeout)
			defer cancel()
			b.pause(ctx)
		}
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.uses > 0 || b.why != nil {
		return nil // the next user wakes it at once
	}
	ok, err := b.e.store.HibernatedSandbox(ctx, b.id, true)
	if err != nil || !ok {
		return err // the next process may wake it for nothing
	}
	if b.state == released {
		b.rec.State = sandbox.Hibernated
	} else {
		b.moveLocked(hibernated)
		b.rearmLocked()
	}
	return nil
}

// saveForRoom saves the sandbox because another one needs its place. If it cannot be
// saved, it is stopped. If it is used again, the pool takes another place.
func (b *liveSandbox) saveForRoom(forced bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.e.ctx), destroyTimeout)
	defer cancel()
	if err := b.saveIdle(ctx); err == nil {
		b.tellLease(ctx)
		return
	} else if !errors.Is(err, errUsed) && b.evict(forced) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.place.Stay()
}

// sweepIdle saves the sandboxes that were unused for long enough, and stops those that
// have been saved for too long.
func (e *Engine) sweepIdle(ctx context.Context) error {
	live := e.all()
	errs := make([]error, len(live))
	var wg sync.WaitGroup
	for i, b := range live {
		if !b.started() {
			continue
		}
		b.mu.Lock()
		due := b.uses == 0 && e.hibernation.Due(&b.rec.Sandbox)
		over := e.hibernation.Over(&b.rec.Sandbox)
		b.mu.Unlock()
		switch {
		case over != "":
			wg.Go(func() {
				errs[i] = b.Stop(ctx, verdict.Reason{Cause: over, Code: sandbox.SandboxLost, Next: "make a new sandbox"})
			})
		case due:
			wg.Go(func() {
				if b.saveIdle(ctx) == nil { // else the record and the log say why
					b.tellLease(ctx)
				}
			})
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

// closeSaveTime bounds how long Close saves sandboxes.
const closeSaveTime = 30 * time.Second

// saveAtClose saves a sandbox that is left to the next process, so that it outlives
// the machine. One that must go on meanwhile is left as it is.
func (b *liveSandbox) saveAtClose(ctx context.Context) bool {
	if !b.e.hibernation.Disk || b.rec.Restless {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, closeSaveTime)
	defer cancel()
	return b.saveIdle(ctx) == nil
}
