package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// maxWaiting bounds the calls of one principal that wait for a place.
const maxWaiting = 256

// newPlaces returns the pool of places for sandboxes.
func newPlaces(o Options) *fair.Pool {
	return fair.New(fair.Options{
		Name: "sandboxes", Total: int64(o.MaxSandboxes),
		MaxWaiting: maxWaiting, RetryAfter: max(time.Second, o.EvictAfter),
	})
}

// register adds b to the boxes of this process. If all places are taken, b
// waits for one until ctx ends, but at most for QueueTime. Meanwhile the pool
// of places evicts idle boxes, and boxes of principals above their share.
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
			return startError(ctx, ctx.Err())
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

// full returns the error for a principal whose box gets no place.
func (e *Engine) full(p sandbox.Principal) error {
	st := e.places.Stats()
	err := sandbox.Errorf(sandbox.Exhausted, "there are %d sandboxes, %d of them yours, and this server may have no more", st.Used, e.places.Held(p))
	err = sandbox.WithRetryAfter(err, max(time.Second, e.opts.EvictAfter))
	return sandbox.WithHint(err, "stop one that is not needed, use one that is there, or try again in %v", sandbox.RetryAfterOf(err))
}

// remember adds b to the boxes of this process, unless the engine is closed.
func (e *Engine) remember(b *liveSandbox) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.sandboxes[b.id] = b
	}
	return !e.closed
}

// forget removes b from the boxes of this process, and releases its place.
func (e *Engine) forget(b *liveSandbox) {
	e.mu.Lock()
	delete(e.sandboxes, b.id)
	e.mu.Unlock()
	b.occupy(nil)
}

// occupy gives the box a place, and releases its previous one.
func (b *liveSandbox) occupy(place *fair.Hold) {
	b.mu.Lock()
	old := b.place
	b.place = place
	b.mu.Unlock()
	old.Release()
}

// evict begins to stop the box for another one, and reports whether its place
// will be free soon. Unless forced, it stops the box only if that is not
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
	idle := b.uses == 0 && !b.rec.Restless && b.rec.State == sandbox.Running && unused >= e.opts.EvictAfter
	switch {
	case b.why != nil:
		return b.goes()
	case b.released || !idle && !forced:
		return false
	}
	// From here on the box cannot be used.
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
	why := *b.why
	if !e.work(func() { b.leavePlace(why) }) {
		return false
	}
	e.opts.Metrics.Evicted()
	return true
}

// leavePlace stops the box. If that fails, the sweep tries again, and until
// then the pool evicts another box.
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

// notStarted returns the error for a box that was stopped before a caller got
// it. It returns err if the box was not.
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

// goes reports whether a stopping box will be gone soon. It is false after a
// failed stop, which the sweep retries: the place stays taken until then. b.mu
// is held.
func (b *liveSandbox) goes() bool {
	if b.teardown == nil {
		return true
	}
	select {
	case <-b.teardown.done:
		return b.teardown.err == nil
	default:
		return true
	}
}
