package engine

import (
	"context"
	"errors"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/account"
	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// maxList bounds how many sandboxes List returns.
const maxList = 1000

// Get returns a sandbox. A stopped sandbox is found as long as its record is
// kept.
func (e *Engine) Get(ctx context.Context, p sandbox.Principal, id string) (sandbox.Sandbox, error) {
	b, rec, err := e.find(ctx, p, id)
	if err != nil {
		return sandbox.Sandbox{}, sandbox.Wrap(err, "get sandbox", "")
	}
	if b == nil {
		// The process that has the sandbox records uses when they end.
		if inUse, err := e.store.RunningRuns(ctx, id); err != nil {
			return sandbox.Sandbox{}, sandbox.Wrap(err, "get sandbox", "")
		} else if len(inUse) > 0 && rec.State != sandbox.Stopped {
			rec.Used = e.now()
		}
		return verdict.WithExpiry(rec.Sandbox), nil
	}
	rec, err = e.store.Sandbox(ctx, id)
	if err != nil && !errors.Is(err, sandbox.NotFound) {
		return sandbox.Sandbox{}, sandbox.Wrap(err, "get sandbox", "")
	}
	return b.viewOf(rec), nil
}

// viewOf returns the sandbox as it stands. By rec, its record, another process
// may have stopped it, or may do so now.
func (b *liveSandbox) viewOf(rec store.Sandbox) sandbox.Sandbox {
	switch {
	case rec.State == sandbox.Stopped:
		b.Lost()
		return verdict.WithExpiry(rec.Sandbox)
	case rec.StopCause != "":
		b.Lost()
		s := b.view()
		s.State, s.Cause = sandbox.Stopped, rec.StopCause
		return s
	}
	return b.view()
}

// List returns at most 1000 sandboxes of p: live ones before stopped ones, and
// the newest first in each group.
func (e *Engine) List(ctx context.Context, p sandbox.Principal) ([]sandbox.Sandbox, error) {
	const op = "list sandboxes"
	if err := request.CheckPrincipal(p); err != nil {
		return nil, sandbox.Wrap(err, op, "")
	}
	recs, err := e.store.Sandboxes(ctx, p, maxList)
	if err != nil {
		return nil, err
	}
	list := make([]sandbox.Sandbox, 0, len(recs))
	var stopped []sandbox.Sandbox
	for _, rec := range recs {
		if b := e.live(rec.ID); b != nil {
			view := b.viewOf(rec)
			if view.State == sandbox.Stopped {
				stopped = append(stopped, view)
			} else {
				list = append(list, view)
			}
			continue
		}
		rec, err := e.refresh(ctx, rec)
		if errors.Is(err, sandbox.NotFound) {
			continue // it was never started, and its record is gone
		}
		if err != nil {
			return nil, sandbox.Wrap(err, op, "")
		}
		if rec.State == sandbox.Stopped {
			stopped = append(stopped, verdict.WithExpiry(rec.Sandbox))
			continue
		}
		list = append(list, verdict.WithExpiry(rec.Sandbox))
	}
	return append(list, stopped...), nil
}

// Stop stops a sandbox with all its programs, and returns when nothing of it is
// left. It is idempotent. If ctx ends first, the work goes on.
func (e *Engine) Stop(ctx context.Context, p sandbox.Principal, id string) error {
	const op = "stop sandbox"
	b, rec, err := e.find(ctx, p, id)
	if err != nil {
		return sandbox.Wrap(err, op, "")
	}
	why := verdict.Reason{Cause: "the sandbox was stopped on request", Code: sandbox.Cancelled}
	if b != nil {
		return sandbox.Wrap(b.Stop(ctx, why), op, id)
	}
	if rec.State == sandbox.Stopped {
		return nil
	}
	return sandbox.Wrap(e.stopOther(ctx, rec, why), op, id)
}

// stopOther stops a sandbox that another process supervises, or supervised.
func (e *Engine) stopOther(ctx context.Context, rec store.Sandbox, why verdict.Reason) error {
	if rec.Driver != e.name {
		return sandbox.WithHint(
			sandbox.Errorf(sandbox.Conflict, "it was made by driver %s, and this is %s", rec.Driver, e.name),
			"use --driver %s", rec.Driver)
	}
	if rec.Ref == "" {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "it is just being started by another process"), "try again in a moment")
	}
	// The record explains to the other process why its box is gone.
	if err := e.store.StoppingSandbox(ctx, rec.ID, why.Cause); err != nil {
		return err
	}
	used, err := e.discard(ctx, rec.ID, rec.Ref)
	if err != nil {
		return err
	}
	_, err = e.store.EndSandbox(ctx, rec.ID, why.Cause, e.now(), why.Verdict(), used)
	return err
}

// discard destroys a box for which this process has no handle, and returns what the
// box had used.
func (e *Engine) discard(ctx context.Context, id, ref string) (store.Reading, error) {
	b, err := e.drv.Attach(ctx, ref)
	if driver.IsGone(err) {
		used := e.accounts.ReadGone(ctx, e.drv, ref)
		return used, e.drv.Discard(ctx, ref)
	}
	if err != nil {
		return store.Reading{}, err
	}
	of := account.Box{ID: id, Box: b}
	used := e.accounts.Read(ctx, of)
	if err := b.Destroy(ctx); err != nil && !driver.IsGone(err) {
		return used, err
	}
	e.accounts.ReadEnded(ctx, of, &used)
	return used, nil
}

// find returns a sandbox of p: the live sandbox if this process supervises it, and
// otherwise the record.
func (e *Engine) find(ctx context.Context, p sandbox.Principal, id string) (*liveSandbox, store.Sandbox, error) {
	if err := request.CheckPrincipal(p); err != nil {
		return nil, store.Sandbox{}, err
	}
	if !sandbox.ValidID(id) {
		return nil, store.Sandbox{}, request.NoSandbox(id)
	}
	if b := e.live(id); b != nil {
		if b.rec.Principal != p { // never changed
			return nil, store.Sandbox{}, request.NoSandbox(id)
		}
		return b, store.Sandbox{}, nil
	}
	rec, err := e.store.Sandbox(ctx, id)
	if errors.Is(err, sandbox.NotFound) || err == nil && rec.Principal != p {
		return nil, store.Sandbox{}, request.NoSandbox(id)
	}
	if err != nil {
		return nil, store.Sandbox{}, err
	}
	rec, err = e.refresh(ctx, rec)
	if errors.Is(err, sandbox.NotFound) {
		return nil, store.Sandbox{}, request.NoSandbox(id)
	}
	return nil, rec, err
}

// usable returns a sandbox of p as a live sandbox of this process. It takes the sandbox
// over if its owner process is dead.
func (e *Engine) usable(ctx context.Context, p sandbox.Principal, id string) (*liveSandbox, error) {
	b, rec, err := e.find(ctx, p, id)
	if err != nil || b != nil {
		return b, err
	}
	if rec.State == sandbox.Stopped {
		return nil, request.Stopped(id, rec.Cause)
	}
	if b, err = e.adopt(ctx, rec); err != nil || b != nil {
		return b, err
	}
	return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "sandbox %s belongs to another process", id),
		"use it through the server that made it; here it can be listed and stopped, and its output read")
}
