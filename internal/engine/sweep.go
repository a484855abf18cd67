package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// Sweep compares what the store says with what the driver has, and mends the
// difference, whatever process left it:
//
//   - a box without a record of a live sandbox is destroyed;
//   - a sandbox whose box is gone is recorded as stopped;
//   - an attached sandbox whose owner is dead is destroyed;
//   - a detached one whose owner is dead is taken over, with the runs that go
//     on in it, if this engine is detached too, and is stopped if not and it
//     has expired;
//   - records and logs that are old are removed;
//   - pulls of images that a killed process began are recorded as ended.
//
// What belongs to another process that lives is left alone.
func (e *Engine) Sweep(ctx context.Context) error {
	e.sweeping.Lock()
	defer e.sweeping.Unlock()
	begun := e.now()
	// The boxes before the records: a record is written before its box is
	// made, so a box that is seen here without one has none.
	refs, err := e.drv.List(ctx)
	if err != nil {
		return sandbox.Wrap(err, "sweep: list boxes", "")
	}
	recs, err := e.store.LiveSandboxes(ctx)
	if err != nil {
		return sandbox.Wrap(err, "sweep", "")
	}
	// What needs no answer of a sandbox does not wait for one.
	live := make(chan error, 1)
	go func() { live <- e.sweepLive(ctx, recs, refs, begun) }()
	e.sweepHandles(recs, begun)
	errs := []error{e.sweepStrays(ctx, refs, recs, begun), e.store.ForgetDeadOwners(ctx), e.sweepOld(ctx), e.sweepWorkspaces(ctx), e.sweepPulls(ctx)}
	return errors.Join(append(errs, <-live)...)
}

// How many sandboxes a sweep looks at at a time, and how long it waits for one
// to be taken over. That goes on then, and the next sweep waits again.
const (
	sweepAtOnce = 16
	adoptWait   = 10 * time.Second
)

// sweepLive looks at the sandboxes that the store says are alive, at the same
// time at several, the principals in turn: guests that do not answer hold up
// neither the sandboxes of others nor many of their own principal's.
func (e *Engine) sweepLive(ctx context.Context, recs []store.Sandbox, refs []string, begun time.Time) error {
	recs = slices.DeleteFunc(slices.Clone(recs), func(rec store.Sandbox) bool { return rec.Driver != e.name })
	errs := make([]error, len(recs))
	places := make(chan struct{}, sweepAtOnce)
	var wg sync.WaitGroup
	for i, rec := range inTurn(recs) {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			errs[i] = sandbox.Wrap(e.sweepOne(ctx, rec, refs, begun), "sweep sandbox", rec.ID)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// inTurn returns the records with those of the principals in turn: the first of
// each, then the second of each, and so on.
func inTurn(recs []store.Sandbox) []store.Sandbox {
	nth := map[string]int{}
	seen := map[sandbox.Principal]int{}
	for _, rec := range recs {
		nth[rec.ID] = seen[rec.Principal]
		seen[rec.Principal]++
	}
	slices.SortStableFunc(recs, func(a, b store.Sandbox) int { return cmp.Compare(nth[a.ID], nth[b.ID]) })
	return recs
}

// adoptSoon is adopt for the sweep, which does not wait long.
func (e *Engine) adoptSoon(ctx context.Context, rec store.Sandbox) (*box, error) {
	ctx, cancel := context.WithTimeout(ctx, adoptWait)
	defer cancel()
	return e.adopt(ctx, rec)
}

// sweepOne looks at one sandbox that the store says is alive.
func (e *Engine) sweepOne(ctx context.Context, rec store.Sandbox, refs []string, begun time.Time) error {
	if rec.Owner == e.owner.ID() {
		return e.sweepOwn(ctx, rec, refs, begun)
	}
	if alive, err := e.store.OwnerAlive(rec.Owner); err != nil || alive {
		return err
	}
	if b, err := e.adoptSoon(ctx, rec); err != nil || b != nil {
		return err
	}
	_, err := e.reap(ctx, rec)
	if errors.Is(err, sandbox.NotFound) {
		return nil // it was never started, and is forgotten
	}
	return err
}

// sweepOwn looks at a sandbox of this process.
func (e *Engine) sweepOwn(ctx context.Context, rec store.Sandbox, refs []string, begun time.Time) error {
	b := e.box(rec.ID)
	if b == nil {
		if b, err := e.adoptSoon(ctx, rec); err != nil || b != nil {
			return err // it was claimed before, and could not be attached then
		}
		// It ended since the records were read, or its end could not be
		// recorded.
		rec, err := e.store.Sandbox(ctx, rec.ID)
		if errors.Is(err, sandbox.NotFound) || err == nil && rec.State == sandbox.Stopped {
			return nil
		}
		if err != nil {
			return err
		}
		return e.bury(ctx, rec, "the sandbox was lost")
	}
	if !b.started() || b.since.After(begun) {
		return nil
	}
	b.mu.Lock()
	why, t := b.why, b.teardown
	b.mu.Unlock()
	switch {
	case why != nil:
		// A stop that failed is tried again.
		select {
		case <-t.done:
			return b.stop(ctx, *why)
		default:
			return nil
		}
	case rec.StopCause != "":
		// Another process began to stop it, and perhaps did not get to the end.
		return b.stop(ctx, reason{cause: rec.StopCause, code: sandbox.Cancelled})
	case !slices.Contains(refs, rec.Ref):
		b.lost()
	}
	return nil
}

// sweepHandles lets go of boxes that another process stopped.
func (e *Engine) sweepHandles(live []store.Sandbox, begun time.Time) {
	e.mu.Lock()
	var boxes []*box
	for _, b := range e.boxes {
		boxes = append(boxes, b)
	}
	e.mu.Unlock()
	for _, b := range boxes {
		isThis := func(rec store.Sandbox) bool { return rec.ID == b.id }
		if b.started() && b.since.Before(begun) && !slices.ContainsFunc(live, isThis) {
			b.lost()
		}
	}
}

// refresh returns the record of a sandbox that this process does not look
// after as it is in truth: one that says it lives, though its owner and so it
// are dead, is mended first.
func (e *Engine) refresh(ctx context.Context, rec store.Sandbox) (store.Sandbox, error) {
	if rec.State == sandbox.Stopped || rec.Driver != e.name || rec.Owner == e.owner.ID() {
		return rec, nil
	}
	if alive, err := e.store.OwnerAlive(rec.Owner); err != nil || alive {
		return rec, err
	}
	return e.reap(ctx, rec)
}

// reap stops a sandbox of a dead owner, unless it is detached and has time
// left. It returns the record as it is then.
func (e *Engine) reap(ctx context.Context, rec store.Sandbox) (store.Sandbox, error) {
	why := "the process that ran the sandbox died"
	if rec.StopCause != "" {
		why = rec.StopCause
	} else if rec.Detached && rec.State != sandbox.Starting {
		busy, err := e.busy(ctx, rec)
		if err != nil {
			return rec, err
		}
		r, over := expired(rec.Sandbox, busy, e.now())
		if !over {
			return rec, nil
		}
		why = r.cause
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

// busy reports whether a sandbox that nobody looks after may have a run that
// goes on: one whose time is not over.
func (e *Engine) busy(ctx context.Context, rec store.Sandbox) (bool, error) {
	runs, err := e.store.RunningRuns(ctx, rec.ID)
	if err != nil {
		return false, err
	}
	now := e.now()
	return slices.ContainsFunc(runs, func(r store.Run) bool {
		return now.Before(r.Started.Add(r.Timeout + backstop))
	}), nil
}

// bury destroys what is left of a sandbox without a handle, and records that
// it stopped. One that never started is forgotten: its creator got an error,
// or died.
func (e *Engine) bury(ctx context.Context, rec store.Sandbox, cause string) error {
	if rec.Ref == "" {
		// Its box, if there is one, is a stray: no live record names it now.
		return e.store.DeleteSandbox(ctx, rec.ID)
	}
	if err := e.discard(ctx, rec.Ref); err != nil {
		return err
	}
	if rec.Workspace != "" && e.features.WorkspaceCopied {
		cause += "; the workspace has what was copied before"
	}
	v := sandbox.Verdict{Code: sandbox.SandboxLost, Cause: cause, NextStep: "make a new sandbox and run it again"}
	_, err := e.store.EndSandbox(ctx, rec.ID, cause, e.now(), v)
	if err == nil {
		e.log.Info("sandbox stopped", "sandbox", rec.ID, "cause", cause)
	}
	return err
}

// sweepStrays destroys boxes that no live sandbox has.
//
// A box that is being made has a record, but its reference is not in it yet.
// A reference with the sandbox's identifier in it tells; for the others, a
// stray must have been one for longer than any creation takes.
func (e *Engine) sweepStrays(ctx context.Context, refs []string, recs []store.Sandbox, now time.Time) error {
	known := map[string]bool{}
	// Those that a pool keeps for somebody are no strays either, nor those
	// that it just gave to a sandbox whose record does not name them yet.
	warm, err := e.store.WarmBoxes(ctx)
	if err != nil {
		return err
	}
	var starting []string
	for _, rec := range recs {
		if rec.Driver != e.name {
			continue
		}
		known[rec.Ref] = true
		if rec.Ref != "" {
			continue
		}
		alive, err := e.store.OwnerAlive(rec.Owner)
		if err != nil {
			return err
		}
		if alive {
			starting = append(starting, rec.ID)
		}
	}
	var errs []error
	strays := map[string]time.Time{}
	for _, ref := range refs {
		isOf := func(id string) bool { return strings.Contains(ref, id) }
		if known[ref] || slices.ContainsFunc(starting, isOf) || slices.ContainsFunc(warm, isOf) {
			continue
		}
		first, seen := e.strays[ref]
		if !seen {
			first = now
		}
		namesAnother := strings.Contains(ref, sandbox.IDPrefix)
		if len(starting) > 0 && !namesAnother && now.Sub(first) < createTimeout {
			strays[ref] = first
			continue
		}
		if err := e.drv.Discard(ctx, ref); err != nil {
			errs = append(errs, fmt.Errorf("discard box %s: %w", ref, err))
			strays[ref] = first
			continue
		}
		e.log.Warn("removed a box that belonged to no sandbox", "ref", ref)
	}
	e.strays = strays
	return errors.Join(errs...)
}

// sweepOld removes records and logs whose time is over.
func (e *Engine) sweepOld(ctx context.Context) error {
	// The directories before the records, which come first.
	dirs, err := e.logDirs()
	if err != nil {
		return sandbox.Wrap(err, "sweep logs", "")
	}
	before := e.now().Add(-e.opts.Retention)
	var errs []error
	runs, err := e.store.RunsEndedBefore(ctx, before)
	errs = append(errs, err)
	for _, r := range runs {
		errs = append(errs, logFiles{e.logs, r.SandboxID, r.ID}.remove(), e.store.DeleteRun(ctx, r.ID))
	}
	errs = append(errs, e.sweepLogs(ctx), e.store.ForgetConnections(ctx, maxRecorded))
	ids, err := e.store.SandboxesEndedBefore(ctx, before)
	errs = append(errs, err)
	for _, id := range ids {
		errs = append(errs, e.store.DeleteSandbox(ctx, id))
	}
	for _, id := range dirs {
		if _, err := e.store.Sandbox(ctx, id); errors.Is(err, sandbox.NotFound) {
			errs = append(errs, e.logs.RemoveAll(id))
		} else {
			errs = append(errs, err)
		}
	}
	return sandbox.Wrap(errors.Join(errs...), "sweep old records", "")
}

func (e *Engine) logDirs() ([]string, error) {
	d, err := e.logs.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

// An adoption is one try at taking a sandbox over.
type adoption struct {
	done chan struct{}
	b    *box
	err  error
}

// adopt takes over a detached sandbox whose owner is dead, with its runs. It
// returns nil if there is nothing to take over: another owner lives, or this
// engine or the sandbox is attached.
func (e *Engine) adopt(ctx context.Context, rec store.Sandbox) (*box, error) {
	if !e.opts.Detached || !rec.Detached || rec.Driver != e.name || rec.Ref == "" || rec.StopCause != "" {
		return nil, nil
	}
	if rec.Owner != e.owner.ID() {
		if alive, err := e.store.OwnerAlive(rec.Owner); err != nil || alive {
			return nil, err
		}
	}
	e.mu.Lock()
	if b := e.boxes[rec.ID]; b != nil {
		e.mu.Unlock()
		return b, nil
	}
	if e.closed {
		e.mu.Unlock()
		return nil, errClosed()
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

// takeOver does the work of adopt. It returns nil if another process was
// faster, or the box is gone.
func (e *Engine) takeOver(rec store.Sandbox) (*box, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.ctx), createTimeout)
	defer cancel()
	claimed, err := e.store.ClaimSandbox(ctx, rec.ID, rec.Owner, e.owner.ID())
	if err != nil || !claimed {
		return nil, err
	}
	handle, err := e.drv.Attach(ctx, rec.Ref)
	if driver.IsGone(err) {
		return nil, e.bury(ctx, rec, "the sandbox died while no server was there")
	}
	if err != nil {
		// It stays ours, without a box: the next sweep tries again.
		return nil, fmt.Errorf("attach: %w", err)
	}
	rec.Owner = e.owner.ID()
	b := e.newBox(rec)
	b.drv, b.guest = handle, e.opts.dialGuest(handle)
	if rec.Workspace != "" && e.opts.Workspaces != nil {
		if b.mount, err = e.mount(ctx, rec.Principal, rec.Workspace, true); err != nil {
			return nil, fmt.Errorf("attach: %w", err)
		}
		b.mount.wakes(b)
	}
	if err := b.newCopy(); err != nil {
		return nil, errors.Join(err, b.abandon(ctx))
	}
	b.paused = e.drv.Info().Features.Pause // it may be; resuming a running one does nothing
	if err := b.wake(); err != nil {
		return nil, errors.Join(err, b.abandon(ctx))
	}
	if err := errors.Join(b.loadEnv(ctx), b.copy.load(ctx)); err != nil {
		return nil, errors.Join(err, b.abandon(ctx))
	}
	runs, err := e.store.RunningRuns(ctx, rec.ID)
	if err != nil {
		return nil, errors.Join(err, b.abandon(ctx))
	}
	b.since = e.now()
	close(b.ready)
	b.occupy(e.places.Take(fair.Request{Principal: rec.Principal, Units: 1, Evict: b.evict}))
	if !e.remember(b) {
		b.occupy(nil)
		b.guest.Close()
		b.unmount()
		return nil, errClosed() // ours by name, but we are as good as dead
	}
	for _, r := range runs {
		b.resumeRun(r)
	}
	b.copy.keepCopying()
	b.watchLease()
	b.release()
	e.log.Info("took over sandbox", "sandbox", b.id, "runs", len(runs))
	return b, nil
}

// abandon ends a box that cannot be taken over.
func (b *box) abandon(ctx context.Context) error {
	b.unmount()
	b.guest.Close()
	return b.e.bury(ctx, b.rec, "the sandbox could not be taken over by the new server")
}
