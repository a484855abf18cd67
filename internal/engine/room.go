package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// maxQueue bounds those who wait for a place.
const maxQueue = 1024

// lookEvery is how often somebody who waits looks for a sandbox that has become
// idle enough to be stopped.
const lookEvery = 250 * time.Millisecond

// A waiter waits for a place for its box among those of this process.
type waiter struct {
	b      *box
	placed chan struct{} // closed when it has one, or err is set
	err    error         // set before placed is closed
}

// register makes b one of this process's boxes. Where there are as many as there
// may be, it waits for a place until ctx ends, or for QueueTime, and has the
// sandboxes stopped that nobody has used for longest.
func (e *Engine) register(ctx context.Context, b *box) error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return errClosed()
	}
	if len(e.queue) == 0 && len(e.boxes) < e.opts.MaxSandboxes {
		e.boxes[b.id] = b
		e.mu.Unlock()
		return nil
	}
	if e.opts.QueueTime <= 0 || len(e.queue) >= maxQueue {
		err := e.full()
		e.mu.Unlock()
		return err
	}
	w := &waiter{b: b, placed: make(chan struct{})}
	e.queue = append(e.queue, w)
	e.mu.Unlock()
	begun := e.now()
	err := e.await(ctx, w)
	e.opts.Metrics.Queued(e.now().Sub(begun))
	return err
}

// full is the error for a box that gets no place. e.mu is held.
func (e *Engine) full() error {
	err := sandbox.Errorf(sandbox.Exhausted, "there are %d sandboxes, and this server may have no more", len(e.boxes))
	err = sandbox.WithRetryAfter(err, max(time.Second, e.opts.EvictAfter))
	return sandbox.WithHint(err, "stop one that is not needed, use one that is there, or try again in %v", sandbox.RetryAfterOf(err))
}

// await waits until w has a place.
func (e *Engine) await(ctx context.Context, w *waiter) error {
	over := time.NewTimer(e.opts.QueueTime)
	defer over.Stop()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		e.makeRoom()
		select {
		case <-w.placed:
			return w.err
		case <-look.C:
		case <-ctx.Done():
			return e.giveUp(w, startError(ctx, ctx.Err()))
		case <-over.C:
			return e.giveUp(w, nil)
		}
	}
}

// giveUp takes a waiter out of the queue with err, or that of a server which is
// full. If it has its place by now it goes on.
func (e *Engine) giveUp(w *waiter, err error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-w.placed:
		return w.err
	default:
	}
	e.queue = slices.DeleteFunc(e.queue, func(o *waiter) bool { return o == w })
	if err == nil {
		err = e.full()
	}
	return err
}

// admit gives places to those who wait while there are any. The next is who has
// the fewest sandboxes, and of those who came first: nobody who asks for many
// keeps others out. e.mu is held.
func (e *Engine) admit() {
	if len(e.queue) == 0 || len(e.boxes) >= e.opts.MaxSandboxes {
		return
	}
	has := map[sandbox.Principal]int{}
	for _, b := range e.boxes {
		has[b.rec.Principal]++ // never changed
	}
	for len(e.queue) > 0 && len(e.boxes) < e.opts.MaxSandboxes {
		next := 0
		for i, w := range e.queue {
			if has[w.b.rec.Principal] < has[e.queue[next].b.rec.Principal] {
				next = i
			}
		}
		w := e.queue[next]
		e.queue = slices.Delete(e.queue, next, next+1)
		e.boxes[w.b.id] = w.b
		has[w.b.rec.Principal]++
		close(w.placed)
	}
}

// dismiss ends all waiting, when the engine closes. e.mu is held.
func (e *Engine) dismiss() {
	for _, w := range e.queue {
		w.err = errClosed()
		close(w.placed)
	}
	e.queue = nil
}

// forget ends a box's being one of this process's.
func (e *Engine) forget(b *box) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.boxes, b.id)
	if !e.closed {
		e.admit()
	}
}

// makeRoom begins to stop as many sandboxes as are waited for, of those that
// nobody uses the ones that were used longest ago. Their workspaces stay.
func (e *Engine) makeRoom() {
	if e.opts.EvictAfter <= 0 {
		return
	}
	// One at a time: else each of several would stop as many.
	e.evicting.Lock()
	defer e.evicting.Unlock()
	e.mu.Lock()
	need := len(e.queue) + len(e.boxes) - e.opts.MaxSandboxes
	boxes := make([]*box, 0, len(e.boxes))
	for _, b := range e.boxes {
		boxes = append(boxes, b)
	}
	e.mu.Unlock()
	before := e.now().Add(-e.opts.EvictAfter)
	type candidate struct {
		b    *box
		used time.Time
	}
	var idle []candidate
	for _, b := range boxes {
		if !b.started() {
			continue
		}
		b.mu.Lock()
		switch {
		case b.why != nil:
			if b.goes() {
				need--
			}
		case b.evictable(before):
			idle = append(idle, candidate{b, b.rec.Used})
		}
		b.mu.Unlock()
	}
	slices.SortFunc(idle, func(a, b candidate) int { return a.used.Compare(b.used) })
	for _, c := range idle {
		if need <= 0 {
			return
		}
		if c.b.evict(before) {
			need--
		}
	}
}

// evictable reports whether the box may be stopped for another: nothing has used
// it since before, and nobody asked for it to be kept. b.mu is held.
func (b *box) evictable(before time.Time) bool {
	return b.uses == 0 && b.why == nil && !b.released && !b.rec.Restless &&
		b.rec.State == sandbox.Running && !b.rec.Used.After(before)
}

// goes reports whether a box that stops is about to be gone: a stop that failed is
// tried again by the sweep, and until then nobody gets its place. b.mu is held.
func (b *box) goes() bool {
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

// evict begins to stop the box if that is still so.
func (b *box) evict(before time.Time) bool {
	b.mu.Lock()
	if !b.evictable(before) {
		b.mu.Unlock()
		return false
	}
	// From here on nobody can use it.
	b.why = &reason{
		cause: fmt.Sprintf("the server was full, and the sandbox was not used for %v", b.e.now().Sub(b.rec.Used).Round(time.Second)),
		code:  sandbox.SandboxLost,
		next:  "make a new sandbox; files of a workspace are still there",
	}
	why := *b.why
	b.mu.Unlock()
	b.beginStop(why)
	b.e.opts.Metrics.Evicted()
	return true
}
