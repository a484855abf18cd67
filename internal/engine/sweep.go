package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// Sweep compares the store's records with the driver's boxes, and repairs
// differences, whichever process left them:
//
//   - a box without a record of a live sandbox is destroyed;
//   - a sandbox whose box is gone is recorded as stopped;
//   - an attached sandbox whose owner process is dead is destroyed;
//   - a detached sandbox whose owner process is dead is taken over with its runs,
//     if this engine is detached too; otherwise it is stopped if it has expired;
//   - old records and logs are removed, and records of revoked tokens;
//   - pulls of images that a killed process began are recorded as ended;
//   - snapshots without a record, incomplete ones and old ones are removed;
//   - sandboxes that were unused for long enough are saved on disk, and those that
//     were saved for too long are stopped;
//   - the usage of sandboxes and workspaces is counted, and the sandboxes of
//     principals that are over a limit then are stopped.
//
// Sweep does not touch sandboxes of another live process.
func (e *Engine) Sweep(ctx context.Context) error {
	e.sweeping.Lock()
	defer e.sweeping.Unlock()
	begun := e.now()
	// List the boxes before the records. A record is written before its box is
	// made, so a box listed here whose record is missing afterwards has none.
	refs, err := e.drv.List(ctx)
	if err != nil {
		return sandbox.Wrap(err, "sweep: list boxes", "")
	}
	refs = slices.Sorted(slices.Values(refs)) // sweepOwn searches it
	recs, err := e.store.LiveSandboxes(ctx)
	if err != nil {
		return sandbox.Wrap(err, "sweep", "")
	}
	// The other steps need no answer from a sandbox, so they do not wait for
	// sweepLive.
	live := make(chan error, 1)
	go func() { live <- e.sweepLive(ctx, recs, refs, begun) }()
	e.sweepHandles(recs, begun)
	errs := []error{e.strays.Sweep(ctx, refs, recs, begun), e.store.ForgetDeadOwners(ctx), e.retention.Sweep(ctx), e.mounts.Sweep(ctx), e.images.SweepPulls(ctx)}
	defer e.packCold()
	errs = append(errs, <-live, e.sweepIdle(ctx), e.sweepUsage(ctx), e.Keeper.Sweep(ctx))
	return errors.Join(errs...)
}

// sweepAtOnce is how many sandboxes a sweep checks at the same time. adoptWait
// is how long it waits for a sandbox to be taken over. The takeover goes on
// after that, and the next sweep waits again.
const (
	sweepAtOnce = 16
	adoptWait   = 10 * time.Second
)

// sweepLive checks the sandboxes that are recorded as live, several at the same
// time, with the principals in turn. A guest that does not answer therefore
// delays neither other principals nor most sandboxes of its own.
func (e *Engine) sweepLive(ctx context.Context, recs []store.Sandbox, refs []string, begun time.Time) error {
	var ours []*store.Sandbox
	for i := range recs {
		if recs[i].Driver == e.name {
			ours = append(ours, &recs[i])
		}
	}
	errs := make([]error, len(ours))
	places := make(chan struct{}, sweepAtOnce)
	var wg sync.WaitGroup
	for i, rec := range fair.InTurn(ours, func(rec *store.Sandbox) sandbox.Principal { return rec.Principal }) {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			errs[i] = sandbox.Wrap(e.sweepOne(ctx, *rec, refs, begun), "sweep sandbox", rec.ID)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// adoptSoon is adopt with a short timeout, for the sweep.
func (e *Engine) adoptSoon(ctx context.Context, rec store.Sandbox) (*liveSandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, adoptWait)
	defer cancel()
	return e.adopt(ctx, rec)
}

// sweepOne checks one sandbox that is recorded as live.
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
		return nil // it was never started, and its record is gone
	}
	return err
}

// sweepOwn checks a sandbox of this process. refs is sorted.
func (e *Engine) sweepOwn(ctx context.Context, rec store.Sandbox, refs []string, begun time.Time) error {
	b := e.live(rec.ID)
	if b == nil {
		if b, err := e.adoptSoon(ctx, rec); err != nil || b != nil {
			return err // it was claimed before, but the attach failed then
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
	why, underway := b.why, b.state == stopping && b.teardown != nil
	b.mu.Unlock()
	switch {
	case why != nil:
		// Retry a stop that failed. An eviction sets the reason before its stop
		// begins.
		if underway {
			return nil
		}
		return b.Stop(ctx, *why)
	case rec.StopCause != "":
		// Another process began to stop it, and may have died before the end.
		return b.Stop(ctx, verdict.Reason{Cause: rec.StopCause, Code: sandbox.Cancelled})
	}
	if _, exists := slices.BinarySearch(refs, rec.Ref); !exists {
		b.Lost()
	}
	return nil
}

// sweepHandles releases sandboxes that another process stopped.
func (e *Engine) sweepHandles(recs []store.Sandbox, begun time.Time) {
	recorded := make(map[string]bool, len(recs))
	for _, rec := range recs {
		recorded[rec.ID] = true
	}
	for _, b := range e.all() {
		if b.started() && b.since.Before(begun) && !recorded[b.id] {
			b.Lost()
		}
	}
}
