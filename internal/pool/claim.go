package pool

import (
	"context"
	"slices"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/trace"
)

// Create hands out a warm box, or makes a box.
func (p *Pool) Create(ctx context.Context, spec *driver.Spec) (driver.Box, error) {
	for {
		w, b := p.take(spec)
		if w == nil {
			break
		}
		begun := time.Now()
		err := trace.Do(ctx, "claim warm box", func(ctx context.Context) error { return driver.Resume(ctx, w.box) })
		p.log.Debug("claimed a warm box", "ref", w.box.Ref(), "took", time.Since(begun))
		if err == nil {
			p.opts.Metrics.Claimed(ctx, time.Since(begun))
			return b, nil
		}
		p.log.Warn("a warm box could not be used", "ref", w.box.Ref(), "error", err)
		p.destroy(w)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	defer p.coldDone()
	// Callers take turns in order of arrival, because many parallel creations
	// slow each other down.
	if err := trace.Do(ctx, "wait for a turn", func(ctx context.Context) error { return p.turns.Acquire(ctx, 1) }); err != nil {
		return nil, err
	}
	defer p.turns.Release(1)
	return p.Driver.Create(ctx, spec)
}

// take returns a warm box of the spec's shape, which the caller then owns. If
// there is none, it returns nil and counts a cold creation until coldDone.
func (p *Pool) take(spec *driver.Spec) (*warm, *claimedBox) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.signal()
	s := p.shapeOfLocked(spec)
	if s == nil || p.closed {
		p.cold++
		p.stats.Unpooled++
		return nil, nil
	}
	s.used = time.Now()
	s.requests++
	if len(s.ready) == 0 {
		p.cold++
		p.stats.Misses++
		p.log.Debug("no warm box", "image", spec.Image, "shapes", len(p.shapes))
		s.target = min(max(1, 2*s.target), p.opts.Max)
		return nil, nil
	}
	i := max(0, slices.IndexFunc(s.ready, func(w *warm) bool { return w.done }))
	w := s.ready[i]
	s.ready = slices.Delete(s.ready, i, i+1)
	p.stats.Hits++
	b := &claimedBox{Box: w.box, receipt: w.receipt}
	p.claimed = append(p.claimed, claim{w.id, s.used, b})
	if len(s.ready) == 0 {
		s.target = min(s.target+1, p.opts.Max)
	}
	return w, b
}

func (p *Pool) coldDone() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cold--
	p.signal()
}
