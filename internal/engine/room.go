package engine

import (
	"context"
	"errors"
	"time"

	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// register adds b to the sandboxes of this process. If all places are taken, b
// waits for one until ctx ends, but at most for QueueTime. Meanwhile the pool
// of places evicts idle sandboxes, and sandboxes of principals above their share.
func (e *Engine) register(ctx context.Context, b *liveSandbox) error {
	order := fair.Request{Principal: b.rec.Principal, Units: 1, Evict: b.evict}
	place, err := e.places.Try(order)
	if err != nil && e.opts.QueueTime > 0 {
		begun := e.now()
		place, err = e.await(ctx, order)
		e.opts.Metrics.Queued(e.now().Sub(begun))
	}
	if err != nil {
		switch {
		case ctx.Err() != nil:
			return request.StartError(ctx, ctx.Err())
		case e.admission.Err() != nil:
			return request.Closed()
		default:
			return e.full(b.rec.Principal)
		}
	}
	b.occupy(place)
	if !e.remember(b) {
		b.occupy(nil)
		return request.Closed()
	}
	return nil
}

// await waits for a place.
func (e *Engine) await(ctx context.Context, order fair.Request) (*fair.Hold, error) {
	ctx, cancel := context.WithTimeout(ctx, e.opts.QueueTime)
	defer cancel()
	defer context.AfterFunc(e.admission, cancel)()
	return e.places.Acquire(ctx, order)
}

// full returns the error for a principal whose sandbox gets no place.
func (e *Engine) full(p sandbox.Principal) error {
	st := e.places.Stats()
	err := sandbox.Errorf(sandbox.Exhausted, "there are %d sandboxes, %d of them yours, and this server may have no more", st.Used, e.places.Held(p))
	err = sandbox.WithRetryAfter(err, max(time.Second, e.opts.EvictAfter))
	return sandbox.WithHint(err, "stop one that is not needed, use one that is there, or try again in %v", sandbox.RetryAfterOf(err))
}

// remember adds b to the sandboxes of this process, unless the engine is closed.
func (e *Engine) remember(b *liveSandbox) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.sandboxes[b.id] = b
	}
	return !e.closed
}

// forget removes b from the sandboxes of this process, and releases its place.
func (e *Engine) forget(b *liveSandbox) {
	e.mu.Lock()
	delete(e.sandboxes, b.id)
	e.mu.Unlock()
	b.occupy(nil)
}

// occupy gives the sandbox a place, and releases its previous one.
func (b *liveSandbox) occupy(place *fair.Hold) {
	b.mu.Lock()
	old := b.place
	b.place = place
	b.mu.Unlock()
	old.Release()
}

// notStarted returns the error for a sandbox that was stopped before a caller got
// it. It returns err if the sandbox was not.
func (b *liveSandbox) notStarted(err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.why == nil || !errors.Is(err, context.Canceled) && !errors.Is(err, sandbox.Conflict) {
		return err
	}
	kind := sandbox.Unavailable
	if b.why.Retry > 0 || b.why.Code == sandbox.DiskFull {
		kind = sandbox.Exhausted
	}
	err = sandbox.Errorf(kind, "%s", b.why.Cause)
	if b.why.Retry > 0 {
		err = sandbox.WithRetryAfter(err, b.why.Retry)
	}
	if b.why.Next == "" {
		return err
	}
	return sandbox.WithHint(err, "%s", b.why.Next)
}
