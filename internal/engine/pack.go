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
		for _, b := range e.all() {
			if e.ctx.Err() == nil && b.started() {
				b.packIfCold(e.ctx)
			}
		}
	})
	if !spawned {
		e.packing.Unlock()
	}
}

// packIfCold compresses the state of the sandbox once. A use of the sandbox does not wait
// for that.
func (b *liveSandbox) packIfCold(ctx context.Context) {
	b.mu.Lock()
	h := b.rec.Hibernation
	cold := b.rec.State == sandbox.Hibernated && !b.packed.Equal(h.Saved) && b.e.hibernation.Cold(h)
	b.mu.Unlock()
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
