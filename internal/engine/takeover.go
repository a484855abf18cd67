package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/engine/run"
	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// refresh returns the current record of a sandbox that this process does not
// supervise. If the record says live but the owner process is dead, refresh
// corrects it first.
func (e *Engine) refresh(ctx context.Context, rec store.Sandbox) (store.Sandbox, error) {
	if rec.State == sandbox.Stopped || rec.Driver != e.name || rec.Owner == e.owner.ID() {
		return rec, nil
	}
	if alive, err := e.store.OwnerAlive(rec.Owner); err != nil || alive {
		return rec, err
	}
	return e.reap(ctx, rec)
}

// reap stops a sandbox of a dead owner process, unless it is detached and has
// not expired. It returns the record as it is afterwards.
func (e *Engine) reap(ctx context.Context, rec store.Sandbox) (store.Sandbox, error) {
	why := "the process that ran the sandbox died"
	if rec.StopCause != "" {
		why = rec.StopCause
	} else if rec.Detached && rec.State != sandbox.Starting {
		busy, err := e.busy(ctx, rec)
		if err != nil {
			return rec, err
		}
		r, over := verdict.Expired(rec.Sandbox, busy, e.now())
		if !over {
			return rec, nil
		}
		why = r.Cause
	}
	claimed, err := e.store.ClaimSandbox(ctx, rec.ID, rec.Owner, e.owner.ID())
	if err != nil {
		return rec, err
	}
	if claimed {
		if err := e.bury(ctx, rec, why); err != nil {
			return rec, err
		}
	}
	return e.store.Sandbox(ctx, rec.ID)
}

// busy reports whether an unsupervised sandbox may have a run in progress, that
// is, a run whose timeout has not passed.
func (e *Engine) busy(ctx context.Context, rec store.Sandbox) (bool, error) {
	runs, err := e.store.RunningRuns(ctx, rec.ID)
	if err != nil {
		return false, err
	}
	now := e.now()
	return slices.ContainsFunc(runs, func(r store.Run) bool {
		return now.Before(r.Started.Add(r.Timeout + run.Backstop))
	}), nil
}

// bury destroys the rest of a sandbox without a handle, and records it as
// stopped. The record of a sandbox that never started is deleted, because its
// creator got an error or died.
func (e *Engine) bury(ctx context.Context, rec store.Sandbox, cause string) error {
	if rec.Ref == "" {
		// Its box, if there is one, is now a stray: no live record names it.
		return e.store.DeleteSandbox(ctx, rec.ID)
	}
	used, err := e.discard(ctx, rec.ID, rec.Ref)
	if err != nil {
		return err
	}
	if rec.Workspace != "" && e.features.WorkspaceCopied {
		cause += "; the workspace has what was copied before"
	}
	v := sandbox.Verdict{Code: sandbox.SandboxLost, Cause: cause, NextStep: "make a new sandbox and run it again"}
	_, err = e.store.EndSandbox(ctx, rec.ID, cause, e.now(), v, used)
	if err == nil {
		e.log.Info("sandbox stopped", "sandbox", rec.ID, "cause", cause)
	}
	return err
}

// adopt takes over a detached sandbox whose owner process is dead, with its
// runs. It returns nil if there is nothing to take over: another owner process
// lives, or this engine or the sandbox is attached.
func (e *Engine) adopt(ctx context.Context, rec store.Sandbox) (*liveSandbox, error) {
	if !e.opts.Detached || !rec.Detached || rec.Driver != e.name || rec.Ref == "" || rec.StopCause != "" {
		return nil, nil
	}
	if rec.Owner != e.owner.ID() {
		if alive, err := e.store.OwnerAlive(rec.Owner); err != nil || alive {
			return nil, err
		}
	}
	e.mu.Lock()
	if b := e.sandboxes[rec.ID]; b != nil {
		e.mu.Unlock()
		return b, nil
	}
	if e.closed {
		e.mu.Unlock()
		return nil, request.Closed()
	}
	a := e.adopting[rec.ID]
	if a == nil {
		a = &adoption{done: make(chan struct{})}
		e.adopting[rec.ID] = a
		e.background.Go(func() {
			a.b, a.err = e.takeOver(rec)
			e.mu.Lock()
			delete(e.adopting, rec.ID)
			e.mu.Unlock()
			close(a.done)
		})
	}
	e.mu.Unlock()
	select {
	case <-a.done:
		return a.b, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// takeOver performs an adoption. It returns nil if another process was faster,
// or if the box is gone.
func (e *Engine) takeOver(rec store.Sandbox) (*liveSandbox, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.ctx), createTimeout)
	defer cancel()
	claimed, err := e.store.ClaimSandbox(ctx, rec.ID, rec.Owner, e.owner.ID())
	if err != nil || !claimed {
		return nil, err
	}
	handle, err := e.drv.Attach(ctx, rec.Ref)
	if driver.IsGone(err) {
		// When it died is not known. It may have been before the owner process ended.
		why := verdict.Reason{Cause: "the sandbox had died when a server took it over"}
		if busy, err := e.busy(ctx, rec); err != nil {
			return nil, err
		} else if ended, over := verdict.Expired(rec.Sandbox, busy, e.now()); over {
			why = ended // the driver ended it by its lease
		}
		return nil, e.bury(ctx, rec, why.Cause)
	}
	if err != nil {
		// This process keeps the claim, without a box. The next sweep tries
		// again.
		return nil, fmt.Errorf("attach: %w", err)
	}
	rec.Owner = e.owner.ID()
	b := e.newLive(rec)
	b.drv = handle
	b.guest = b.dialGuest()
	if rec.Workspace != "" && e.opts.Workspaces != nil {
		if b.mount, err = e.mounts.Hold(ctx, rec.Principal, rec.Workspace, rec.Volumes); err != nil {
			b.guest.Close()
			return nil, fmt.Errorf("attach: %w", err)
		}
		b.mount.Wakes(b)
	}
	// The lease applies already: the guest may not keep the sandbox past its end
	// by not answering. Nor may it delay Close. A sandbox whose end has come
	// gets adoptWait, for the runs that ended in time.
	asking, stop := context.WithTimeout(ctx, max(b.leaseLeft(), adoptWait))
	defer stop()
	defer context.AfterFunc(e.ctx, stop)()
	hangUp := context.AfterFunc(asking, b.guest.Close)
	runs, err := b.load(asking)
	if !hangUp() && err == nil {
		err = asking.Err()
	}
	if err != nil {
		// The mount knows the sandbox, and its watcher may wait to stop it.
		defer close(b.ready)
		defer b.fail()
	}
	if err != nil && e.ctx.Err() != nil {
		b.guest.Close()
		b.unmount()
		return nil, request.Closed() // the next process takes it over
	}
	if err != nil {
		return nil, errors.Join(err, b.abandon())
	}
	b.begin()
	if !b.saved {
		b.occupy(e.places.Take(fair.Request{Principal: rec.Principal, Units: 1, Evict: b.evict}))
	}
	if !e.remember(b) {
		b.occupy(nil)
		b.guest.Close()
		b.unmount()
		return nil, request.Closed() // this process has the claim, but it is about to end
	}
	for _, r := range runs {
		b.resumeRun(r)
	}
	b.tellLease(ctx)
	b.copy.Keep()
	b.watchLease()
	b.release()
	e.log.Info("took over sandbox", "sandbox", b.id, "runs", len(runs))
	return b, nil
}

// load reads what another process knew of a sandbox, and returns its runs in
// progress.
func (b *liveSandbox) load(ctx context.Context) ([]store.Run, error) {
	var err error
	if b.copy, err = b.mount.Main().NewCopy(b); err != nil {
		return nil, err
	}
	b.paused = b.e.drv.Info().Features.Pause // it may be; resuming a running box has no effect
	if b.rec.State == sandbox.Hibernated && b.e.drv.Info().Features.Save {
		// It is saved on disk, and stays there until its next use. It has no runs.
		b.saved, b.envLater = true, b.rec.HasEnv
		return nil, nil
	}
	if err := b.wake(); err != nil {
		return nil, err
	}
	if err := errors.Join(b.loadEnv(ctx), b.copy.Load(ctx)); err != nil {
		return nil, err
	}
	return b.e.store.RunningRuns(ctx, b.id)
}

// abandon destroys the box of a sandbox that cannot be taken over. It has a
// timeout of its own, because the guest may have used up the other.
func (b *liveSandbox) abandon() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.e.ctx), destroyTimeout)
	defer cancel()
	b.unmount()
	b.guest.Close()
	b.mu.Lock()
	why, over := verdict.Expired(b.rec.Sandbox, b.uses > 0, b.e.now())
	b.mu.Unlock()
	if !over {
		why.Cause = "the sandbox could not be taken over by the new server"
	}
	return b.e.bury(ctx, b.rec, why.Cause)
}
