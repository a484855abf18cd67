package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
)

// Run keeps boxes warm until ctx ends, and returns ctx's error.
func (p *Pool) Run(ctx context.Context) error {
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		p.trim(ctx) // in every round, even if there is always a box to make
		if p.makeOne(ctx) || p.bringOnOne(ctx) {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.wakeUp:
			// The caller uses the claimed box now. Its replacement must not
			// compete for the CPUs.
			select {
			case <-ctx.Done():
			case <-time.After(firstUse):
			}
		case <-t.C:
		}
	}
}

// makeOne makes a warm box of the shape that lacks most boxes. It returns false
// if there was none to make. It makes nothing while a caller waits for a cold
// box.
func (p *Pool) makeOne(ctx context.Context) bool {
	p.mu.Lock()
	var s *shape
	total := 0
	for _, c := range p.shapes {
		total += len(c.ready)
		if lack := c.target - len(c.ready); lack > 0 && time.Since(c.failed) > retryAfter && (s == nil || lack > s.target-len(s.ready)) {
			s = c
		}
	}
	if s == nil || p.cold > 0 || p.closed || ctx.Err() != nil {
		p.mu.Unlock()
		return false
	}
	if total >= p.opts.Max {
		made := p.yieldLocked(s)
		p.mu.Unlock()
		return made
	}
	if p.opts.Room != nil && !p.opts.Room(s.spec.Limits.MemoryBytes) {
		s.failed = time.Now()
		p.log.Info("keep no more sandboxes ready: the machine's memory is short", "image", s.spec.Image)
		p.mu.Unlock()
		return false
	}
	p.workers.Add(1)
	s.busy = true
	p.mu.Unlock()
	defer p.workers.Done()
	err := p.add(ctx, s)
	p.mu.Lock()
	defer p.mu.Unlock()
	s.busy = false
	if err == nil {
		return true
	}
	s.failed = time.Now()
	if ctx.Err() == nil && !p.closed {
		p.stats.Failures++
		p.log.Warn("make a warm box", "image", s.spec.Image, "error", err)
	}
	return false
}

// bringOnOne runs Further on one box, and returns false if there was none. The box
// cannot be claimed meanwhile. It does nothing while a caller waits for a cold
// box.
func (p *Pool) bringOnOne(ctx context.Context) bool {
	busy := p.opts.Busy != nil && p.opts.Busy()
	due := func(w *warm) bool { return !w.done && (!busy || time.Since(w.since) > patience) }
	p.mu.Lock()
	var s *shape
	var w *warm
	if p.opts.Further != nil && p.cold == 0 && !p.closed && ctx.Err() == nil {
		for _, c := range p.shapes {
			if i := slices.IndexFunc(c.ready, due); i >= 0 && time.Since(c.used) > quiet {
				s, w = c, c.ready[i]
				c.ready = slices.Delete(c.ready, i, i+1)
				break
			}
		}
	}
	if w == nil {
		p.mu.Unlock()
		return false
	}
	p.making[w.id], s.busy = true, true
	spec := s.spec
	spec.ID = w.id
	p.workers.Add(1)
	p.mu.Unlock()
	defer p.workers.Done()
	ctx, cancel := context.WithTimeout(ctx, makeTime)
	defer cancel()
	begun := time.Now()
	err := driver.Resume(ctx, w.box)
	if err == nil {
		if err := p.opts.Further(ctx, w.box, &spec); err != nil && ctx.Err() == nil {
			p.log.Warn("bring a warm box on", "ref", w.box.Ref(), "error", err)
		}
		// Receipt is a round trip to the guest. After it, the guest has handled
		// the end of the stream that Further used. Otherwise the guest would do
		// so first after the claim.
		w.receipt, err = w.box.Receipt(ctx)
	}
	if err == nil {
		_, err = driver.Pause(ctx, w.box)
	}
	p.mu.Lock()
	delete(p.making, w.id)
	s.busy, w.done = false, true
	keep := err == nil && !p.closed
	if keep {
		s.ready = append(s.ready, w)
		slices.SortStableFunc(s.ready, func(a, b *warm) int { return a.since.Compare(b.since) })
	}
	p.mu.Unlock()
	if !keep {
		p.destroy(w)
	}
	p.log.Debug("brought a warm box on", "ref", w.box.Ref(), "took", time.Since(begun), "error", err)
	return true
}

// add adds a warm box to a shape. If it fails, it destroys the box.
func (p *Pool) add(ctx context.Context, s *shape) (err error) {
	ctx, cancel := context.WithTimeout(ctx, makeTime)
	defer cancel()
	begun := time.Now()
	w := &warm{id: p.opts.Shard.NewID(), done: p.opts.Further == nil}
	p.mu.Lock()
	p.making[w.id] = true
	p.mu.Unlock()
	defer func() {
		if err != nil {
			p.destroy(w)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.making, w.id)
	}()
	// Add the box to the ledger first, because a box that is not in it is a
	// stray.
	if err := p.opts.Ledger.AddWarm(ctx, w.id); err != nil {
		return err
	}
	spec := s.spec
	spec.ID = w.id
	if p.opts.Ready != nil {
		spec.Streams = 2 // one for Ready, and one for the caller that claims it
		if p.opts.Further != nil {
			spec.Streams++
		}
	}
	if w.box, err = p.Driver.Create(ctx, &spec); err != nil {
		return err
	}
	if p.opts.Ready != nil {
		if err := p.opts.Ready(ctx, w.box, &spec); err != nil {
			return fmt.Errorf("make it ready: %w", err)
		}
	}
	if w.receipt, err = w.box.Receipt(ctx); err != nil {
		return err
	}
	if _, err := driver.Pause(ctx, w.box); err != nil {
		return err
	}
	w.since = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errors.New("the pool is closed")
	}
	s.ready = append(s.ready, w)
	p.log.Debug("made a warm box", "ref", w.box.Ref(), "took", w.since.Sub(begun))
	return nil
}
