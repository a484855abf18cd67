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
	err := p.add(ctx, s, !p.busy())
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

// busy reports whether callers keep the CPUs busy.
func (p *Pool) busy() bool { return p.opts.Busy != nil && p.opts.Busy() }

// bringOnOne replaces a box for which Further is not done by one that is made from the
// prototype of its shape. Without a prototype, it runs Further on the box. It returns
// false if there was none. It does nothing while a caller waits for a cold box.
func (p *Pool) bringOnOne(ctx context.Context) bool {
	busy := p.busy()
	due := func(w *warm) bool { return !w.done && (!busy || time.Since(w.since) > patience) }
	p.mu.Lock()
	var s *shape
	var w *warm
	if p.opts.Further != nil && p.cold == 0 && !p.closed && ctx.Err() == nil {
		for _, c := range p.shapes {
			if time.Since(c.used) <= quiet || c.prototype != nil && !p.mayReplaceLocked(c) {
				continue
			}
			if i := slices.IndexFunc(c.ready, due); i >= 0 {
				s, w = c, c.ready[i]
				break
			}
		}
	}
	if w == nil {
		p.mu.Unlock()
		return false
	}
	s.busy = true
	restore := s.prototype != nil
	if !restore { // it cannot be claimed meanwhile
		p.making[w.id] = true
		s.ready = slices.DeleteFunc(s.ready, func(r *warm) bool { return r == w })
	}
	p.workers.Add(1)
	p.mu.Unlock()
	defer p.workers.Done()
	if !restore {
		p.bringOn(ctx, s, w)
		return true
	}
	err := p.add(ctx, s, true) // trim destroys w, which can be claimed until then
	p.mu.Lock()
	defer p.mu.Unlock()
	s.busy = false
	if err != nil {
		s.failed = time.Now()
	}
	return err == nil
}

// mayReplaceLocked reports whether there may be a box of s more for a moment. The caller
// holds p.mu.
func (p *Pool) mayReplaceLocked(s *shape) bool {
	return time.Since(s.failed) > retryAfter && (p.opts.Room == nil || p.opts.Room(s.spec.Limits.MemoryBytes))
}

// bringOn runs Further on a box that cannot be claimed meanwhile. If it took long, the box becomes
// the prototype of its shape, and is destroyed: its streams have ended, which would
// make a claim slow.
func (p *Pool) bringOn(ctx context.Context, s *shape, w *warm) {
	spec := s.spec
	spec.ID = w.id
	ctx, cancel := context.WithTimeout(ctx, makeTime)
	defer cancel()
	begun := time.Now()
	became := false
	err := driver.Resume(ctx, w.box)
	if err == nil {
		clonable, err := p.opts.Further(ctx, w.box, &spec)
		if err == nil && clonable && p.wantsPrototype(s, time.Since(begun)) {
			err = p.makePrototype(ctx, s, w)
			became = err == nil
		}
		if err != nil && ctx.Err() == nil {
			p.log.Warn("bring a warm box on", "ref", w.box.Ref(), "error", err)
		}
	}
	if err == nil && !became {
		// Receipt is a round trip to the guest. After it, the guest has handled
		// the end of the stream that Further used. Otherwise the guest would do
		// so first after the claim.
		w.receipt, err = w.box.Receipt(ctx)
		if err == nil {
			_, err = driver.Pause(ctx, w.box)
		}
	}
	p.mu.Lock()
	delete(p.making, w.id)
	s.busy, w.done = false, true
	keep := err == nil && !became && !p.closed
	if keep {
		s.ready = append(s.ready, w)
		slices.SortStableFunc(s.ready, func(a, b *warm) int { return a.since.Compare(b.since) })
	}
	p.mu.Unlock()
	if !keep {
		p.destroy(w)
	}
	p.log.Debug("brought a warm box on", "ref", w.box.Ref(), "took", time.Since(begun), "error", err)
}

// add adds a warm box to a shape, from its prototype if restore is set and it has one.
func (p *Pool) add(ctx context.Context, s *shape, restore bool) error {
	p.mu.Lock()
	pr := s.prototype
	p.mu.Unlock()
	if restore && pr != nil {
		err := p.addFrom(ctx, s, pr)
		if err == nil || ctx.Err() != nil {
			return err
		}
		p.log.Warn("make a warm box from a snapshot; it is started afresh", "image", s.spec.Image, "error", err)
	}
	return p.addFrom(ctx, s, nil)
}

// addFrom adds a warm box to a shape, from a prototype, or afresh if that is nil. If it
// fails, it destroys the box.
func (p *Pool) addFrom(ctx context.Context, s *shape, pr *prototype) (err error) {
	ctx, cancel := context.WithTimeout(ctx, makeTime)
	defer cancel()
	begun := time.Now()
	w := &warm{id: p.opts.Shard.NewID(), done: p.opts.Further == nil || pr != nil}
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
	if pr != nil {
		w.box, err = p.makeFrom(ctx, s, pr, &spec)
	} else {
		w.box, err = p.start(ctx, &spec)
	}
	if err != nil {
		return err
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
	if pr != nil {
		p.stats.Restored++
	} else {
		p.stats.Started++
	}
	s.ready = append(s.ready, w)
	p.log.Debug("made a warm box", "ref", w.box.Ref(), "restored", pr != nil, "took", w.since.Sub(begun))
	return nil
}

// start starts a box, and makes it ready. If that fails, it returns the box also, if
// there is one.
func (p *Pool) start(ctx context.Context, spec *driver.Spec) (driver.Box, error) {
	if p.opts.Ready != nil {
		spec.Streams = 2 // one for Ready, and one for the caller that claims it
		if p.opts.Further != nil {
			spec.Streams++
		}
	}
	b, err := p.Driver.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	if p.opts.Ready != nil {
		if err := p.opts.Ready(ctx, b, spec); err != nil {
			return b, fmt.Errorf("make it ready: %w", err)
		}
	}
	return b, nil
}
