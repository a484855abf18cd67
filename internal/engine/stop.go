package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/hibernation"
	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/engine/run"
	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Stop stops the sandbox, or joins a stop in progress. It returns when nothing is
// left of the sandbox or ctx ends; in the latter case the stop goes on. The first
// reason counts. A later stop tries again after a failed one.
func (b *liveSandbox) Stop(ctx context.Context, why verdict.Reason) error {
	b.mu.Lock()
	if b.state == starting { // the caller of create gets the reason
		b.moveLocked(cancelled)
		b.why = &why
	}
	cancel := b.cancel
	b.mu.Unlock()
	cancel()
	select {
	case <-b.ready: // creation ends soon, since its context has ended
	case <-ctx.Done():
		return ctx.Err()
	}
	if !b.started() {
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
	switch {
	case b.state == gone, b.state == stopping && b.teardown != nil:
		return b.teardown
	case b.state == released: // the next process stops it
		t := &teardown{done: make(chan struct{}), err: request.Closed()}
		close(t.done)
		return t
	}
	t := &teardown{done: make(chan struct{}), err: request.Closed()}
	if b.state != stopping { // an eviction, or a stop during the start, made it so
		b.moveLocked(stopping)
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
		b.mu.Lock()
		defer b.mu.Unlock()
		if t.err == nil {
			b.moveLocked(gone)
		} else {
			b.moveLocked(stuck)
		}
		close(t.done)
	})
	if !works {
		b.moveLocked(stuck)
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
	runs := make([]*run.Run, 0, len(b.runs))
	for _, r := range b.runs {
		runs = append(runs, r)
	}
	b.mu.Unlock()
	for _, r := range runs {
		r.Hurry()
	}
	if b.copy != nil {
		why = b.endCopy(context.WithoutCancel(ctx), why)
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), destroyTimeout)
		defer cancel()
	}
	used := b.e.accounts.Read(ctx, b.metered()) // also records the last connections
	if err := b.drv.Destroy(ctx); err != nil && !driver.IsGone(err) {
		return errors.Join(sandbox.Wrap(err, "destroy sandbox", b.id), noteErr)
	}
	if b.copy != nil {
		b.copy.End()
	}
	b.guest.Close()
	if !run.EndWithin(destroyTimeout, runs) { // their streams have ended
		b.e.log.Error("runs of a sandbox that is gone do not end", "sandbox", b.id)
	}
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	b.e.accounts.ReadEnded(ctx, b.metered(), &used)
	_, err := b.e.store.EndSandbox(ctx, b.id, why.Cause, b.e.now(), why.Verdict(), used)
	if err != nil {
		return errors.Join(err, noteErr)
	}
	b.e.log.Info("sandbox stopped", "sandbox", b.id, "cause", why.Cause)
	b.unmount()
	b.e.forget(b)
	return nil
}

// Lost begins to clean up after a sandbox that was found dead, and works out
// why it died. A sandbox that dies while it starts is left to the code that
// makes it.
func (b *liveSandbox) Lost() {
	b.mu.Lock()
	lives := b.livesLocked()
	kills := b.kills
	limit := b.rec.Limits.MemoryBytes
	b.mu.Unlock()
	if !lives {
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

// Dead reports whether the sandbox's guest is certainly gone.
func (b *liveSandbox) Dead(ctx context.Context) bool {
	if in, ok, err := driver.ReadIncidents(ctx, b.drv); ok || driver.IsGone(err) {
		return !in.Alive
	}
	return driver.IsGone(b.guest.Health(ctx))
}

// letGo leaves the sandbox to the next process.
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
	b.moveLocked(released)
	b.rest.stop()
	b.lease.stop()
	runs := make([]*run.Run, 0, len(b.runs))
	for _, r := range b.runs {
		runs = append(runs, r)
	}
	b.mu.Unlock()
	for _, r := range runs {
		r.LetGo()
	}
	if !run.EndWithin(run.EndTimeout, runs) {
		b.guest.Close() // which ends their streams
		if !run.EndWithin(run.EndTimeout, runs) {
			b.e.log.Error("runs of a sandbox do not end their streams", "sandbox", b.id)
		}
	}
	if b.copy != nil {
		b.endCopy(ctx, verdict.Reason{})
		b.copy.End()
	}
	if len(runs) > 0 || !b.saveAtClose(ctx) {
		b.sleep()
	}
	b.guest.Close()
	b.unmount()
	b.e.forget(b)
	return nil
}

// evict begins to save the sandbox on disk for another one, or to stop it, and reports
// whether its place will be free soon. Unless forced, it stops the sandbox only if that is not
// restless and was unused for EvictAfter. Without an EvictAfter, it refuses in
// any case.
func (b *liveSandbox) evict(forced bool) bool {
	e := b.e
	if e.opts.EvictAfter <= 0 {
		return false
	}
	select {
	case <-b.ready:
	default:
		if !forced {
			return false
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	unused := e.now().Sub(b.rec.Used)
	idle := b.uses == 0 && !b.rec.Restless && b.state == running && unused >= e.opts.EvictAfter
	switch {
	case b.why != nil:
		// After a failed stop, which the sweep retries, the place stays taken.
		return b.state != stuck
	case !idle && !forced || b.state == released:
		return false
	case b.state == failed:
		return true // its place is free in a moment
	}
	if b.state == running && b.uses == 0 && e.hibernation.Disk && !hibernation.Refused(&b.rec.Sandbox) {
		return e.work(func() { b.saveForRoom(forced) })
	}
	// From here on the sandbox cannot be used.
	b.why = &verdict.Reason{
		Cause: fmt.Sprintf("the server was full, and the sandbox was not used for %v", unused.Round(time.Second)),
		Code:  sandbox.SandboxLost,
		Next:  "make a new sandbox; files of a workspace are still there",
		Retry: max(time.Second, e.opts.EvictAfter),
	}
	if !idle {
		b.why.Cause = fmt.Sprintf("the server was full, and its owner had %d of its %d sandboxes, more than a fair share",
			e.places.Held(b.rec.Principal), e.opts.MaxSandboxes)
		b.why.Next = "use fewer sandboxes at the same time; files of a workspace are still there"
	}
	if b.state == starting {
		b.moveLocked(cancelled)
	} else {
		b.moveLocked(stopping)
	}
	why := *b.why
	if !e.work(func() { b.leavePlace(why) }) {
		return false
	}
	e.opts.Metrics.Evicted()
	return true
}

// leavePlace stops the sandbox. If that fails, the sweep tries again, and until
// then the pool evicts another sandbox.
func (b *liveSandbox) leavePlace(why verdict.Reason) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.e.ctx), destroyTimeout+createTimeout)
	defer cancel()
	if err := b.Stop(ctx, why); err != nil {
		b.e.log.Error("stop sandbox for another", "sandbox", b.id, "error", err)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.place.Stay()
	}
}
