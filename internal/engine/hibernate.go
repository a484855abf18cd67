package engine

import (
	"context"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Hibernate pauses all programs of a sandbox until its next use or the end of
// its lifetime. Its idle limit and the end that was set for it do not count
// meanwhile. Requests that are being forwarded to it are cut off. The error is
// of kind Conflict if the sandbox hibernates already or has runs in progress,
// of kind Unsupported if the driver cannot pause, and of kind Exhausted if the principal
// may save no more sandboxes on disk.
func (e *Engine) Hibernate(ctx context.Context, p sandbox.Principal, id string) error {
	const op = "hibernate sandbox"
	b, err := e.usable(ctx, p, id)
	if err != nil {
		return sandbox.Wrap(err, op, "")
	}
	if e.hibernation.Disk {
		if err := e.accounts.CheckSave(ctx, b.rec.Principal); err != nil {
			return sandbox.Wrap(err, op, "")
		}
	}
	return sandbox.Wrap(b.hibernate(ctx), op, "")
}

// Restart ends all programs of a sandbox, and starts it afresh with its files. Contexts
// and services end with the programs. The error is of kind Conflict while the sandbox has
// runs, and of kind Unsupported if the driver cannot restart it.
func (e *Engine) Restart(ctx context.Context, p sandbox.Principal, id string) error {
	const op = "restart sandbox"
	b, err := e.usable(ctx, p, id)
	if err != nil {
		return sandbox.Wrap(err, op, "")
	}
	return sandbox.Wrap(b.restart(ctx), op, "")
}

func (b *liveSandbox) restart(ctx context.Context) error {
	if !b.e.features.Restart {
		return driver.NoRestart()
	}
	if err := b.Still(ctx, func(ctx context.Context, box driver.Box) error { return driver.Restart(ctx, box) }); err != nil {
		return err
	}
	b.e.log.Info("restarted sandbox", "sandbox", b.id)
	return nil
}

// Wake ends the hibernation of a sandbox, as any use does. It has no effect on
// a sandbox that does not hibernate.
func (e *Engine) Wake(ctx context.Context, p sandbox.Principal, id string) error {
	const op = "wake sandbox"
	b, err := e.usable(ctx, p, id)
	if err != nil {
		return sandbox.Wrap(err, op, "")
	}
	release, err := b.use(ctx)
	if err != nil {
		return sandbox.Wrap(err, op, "")
	}
	release()
	return nil
}

// SetEnd makes a sandbox end after ttl from now, in place of the end that its
// creator asked for, but not later than its lifetime. Zero ends it now: the
// sandbox stops or hibernates shortly after SetEnd. The error is of kind Conflict
// if the sandbox hibernates or has stopped.
func (e *Engine) SetEnd(ctx context.Context, p sandbox.Principal, id string, ttl time.Duration) (sandbox.Sandbox, error) {
	const op = "set end of sandbox"
	b, err := e.usable(ctx, p, id)
	if err != nil {
		return sandbox.Sandbox{}, sandbox.Wrap(err, op, "")
	}
	if err := b.setEnd(ctx, ttl); err != nil {
		return sandbox.Sandbox{}, sandbox.Wrap(err, op, "")
	}
	return b.view(), nil
}

func (b *liveSandbox) setEnd(ctx context.Context, ttl time.Duration) error {
	select {
	case <-b.ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := b.recordEnd(ctx, ttl); err != nil {
		return err
	}
	b.tellLease(ctx)
	return nil
}

func (b *liveSandbox) recordEnd(ctx context.Context, ttl time.Duration) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.refuseLocked(); err != nil {
		return err
	}
	if b.state == hibernated {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "sandbox %s hibernates, and does not end for its timeout", b.id), "wake it first")
	}
	now := b.e.now()
	if ttl != 0 {
		if err := request.CheckTTL(ttl); err != nil {
			return err
		}
	}
	ends := now.Add(ttl)
	if last := b.rec.Created.Add(b.rec.Limits.Lifetime); ends.After(last) {
		ends = last
	}
	if err := b.e.store.SetSandboxEnd(ctx, b.id, ends); err != nil {
		return err
	}
	b.rec.Ends = ends
	b.rearmLocked()
	return nil
}

func (b *liveSandbox) hibernate(ctx context.Context) error {
	if !b.e.drv.Info().Features.Pause {
		return b.e.rules.CannotHibernate()
	}
	if s := b.view(); s.State == sandbox.Hibernated {
		return sandbox.Errorf(sandbox.Conflict, "sandbox %s hibernates already", b.id)
	}
	release, err := b.use(ctx) // so that it does not rest meanwhile
	if err != nil {
		return err
	}
	defer release()
	if err := b.quiet(ctx, 0); err != nil {
		return err
	}
	if err := b.copy.Out(ctx); err != nil {
		return err
	}
	ok, err := b.e.store.HibernatedSandbox(ctx, b.id, true)
	if err != nil {
		return err
	}
	if !ok {
		return sandbox.Errorf(sandbox.Conflict, "sandbox %s is being stopped", b.id)
	}
	b.mu.Lock()
	switch b.state {
	case running:
		b.moveLocked(hibernated)
	case released:
		// The record has the state already, and the next process obeys it. Pause
		// the sandbox for it.
		b.rec.State = sandbox.Hibernated
	}
	b.rearmLocked()
	b.mu.Unlock()
	b.tellLease(ctx)
	release()
	b.sleep() // does nothing if the sandbox is in use; the end of that use pauses it
	return nil
}

// hibernateAtEnd hibernates the sandbox because its end has come. A sandbox
// that cannot hibernate is stopped, because its creator asked for no more time.
func (b *liveSandbox) hibernateAtEnd() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.e.ctx), b.e.pauseTimeout())
	defer cancel()
	var err error
	if b.rec.AtEnd == sandbox.AtEndHibernateFiles {
		err = b.restart(ctx)
	}
	if err == nil {
		err = b.hibernate(ctx)
	}
	if err == nil {
		b.e.log.Info("sandbox hibernates", "sandbox", b.id)
		return
	}
	b.e.log.Warn("hibernate sandbox at its end", "sandbox", b.id, "error", err)
	why := verdict.Reason{
		Cause: "the sandbox reached the end that was set for it, and could not hibernate: " + err.Error(),
		Code:  sandbox.SandboxLost,
	}
	if err := b.Stop(context.WithoutCancel(b.e.ctx), why); err != nil {
		b.e.log.Error("stop expired sandbox", "sandbox", b.id, "error", err)
	}
}
