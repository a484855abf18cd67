package engine

import (
	"context"

	"github.com/glovebox-dev/glovebox/internal/engine/hibernation"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// packCold compresses the states that have been saved for long, one after another in the
// background, unless it still does so.
func (e *Engine) packCold() {
	if !e.packing.TryLock() {
		return
	}
	spawned := e.spawn(func() {
		defer e.packing.Unlock()
		var cold []*liveSandbox
		for _, b := range e.all() {
			if _, is := b.cold(); is && b.started() {
				cold = append(cold, b)
			}
		}
		for i, b := range cold {
			e.opts.Metrics.Cold(len(cold) - i)
			if e.ctx.Err() != nil {
				return
			}
			b.packIfCold(e.ctx)
		}
		e.opts.Metrics.Cold(0)
	})
	if !spawned {
		e.packing.Unlock()
	}
}

// packIfCold compresses the state of the sandbox once. A use of the sandbox does not wait
// for that.
func (b *liveSandbox) packIfCold(ctx context.Context) {
	h, cold := b.cold()
	if !cold {
		return
	}
	bytes, done := b.e.hibernation.Pack(ctx, hibernation.Box{ID: b.id, Principal: b.rec.Principal, Driver: b.drv, Hibernation: &h})
	if !done {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.packed = h.Saved
	if b.rec.Hibernation.Saved.Equal(h.Saved) {
		b.rec.Hibernation.Bytes = bytes
	}
}

// cold returns what the record says of the saved state, and reports whether that waits for
// its compression.
func (b *liveSandbox) cold() (sandbox.Hibernation, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.rec.Hibernation
	return h, b.rec.State == sandbox.Hibernated && !b.packed.Equal(h.Saved) && b.e.hibernation.Cold(h)
}
