package engine

import (
	"context"
	"errors"

	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// register adds b to the sandboxes of this process, if there is a place for it.
func (e *Engine) register(ctx context.Context, b *liveSandbox) error {
	place, err := e.places.Find(ctx, b.rec.Principal, b.evict)
	if err != nil {
		return err
	}
	b.occupy(place)
	if !e.remember(b) {
		b.occupy(nil)
		return request.Closed()
	}
	return nil
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
