package pool

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
)

// yieldLocked lowers the target of the shape with the oldest request by one, to make
// room for a box of s. It returns false if there is no such shape. The caller
// holds p.mu.
func (p *Pool) yieldLocked(s *shape) bool {
	var from *shape
	for _, c := range p.shapes {
		if len(c.ready) > c.least() && c.used.Before(s.used) && time.Since(c.used) > spare && (from == nil || c.used.Before(from.used)) {
			from = c
		}
	}
	if from == nil {
		return false
	}
	from.target = len(from.ready) - 1
	return true
}

// destroy destroys a warm box and removes it from the ledger.
func (p *Pool) destroy(w *warm) {
	ctx, cancel := context.WithTimeout(context.Background(), makeTime)
	defer cancel()
	var errs []error
	if w.box != nil {
		if err := w.box.Destroy(ctx); err != nil && !driver.IsGone(err) {
			// The sweep destroys it when it is out of the ledger.
			errs = append(errs, err)
		}
	}
	p.mu.Lock()
	p.claimed = slices.DeleteFunc(p.claimed, func(c claim) bool { return c.id == w.id })
	p.mu.Unlock()
	if err := errors.Join(append(errs, p.unlist(ctx, w.id))...); err != nil {
		p.log.Error("destroy a warm box", "error", err)
	}
}

// unlist removes a box from the ledger. If that fails, trim retries it, because
// the sweep skips every box in the ledger.
func (p *Pool) unlist(ctx context.Context, id string) error {
	err := p.opts.Ledger.RemoveWarm(ctx, id)
	if err != nil {
		p.mu.Lock()
		p.listed = append(p.listed, id)
		p.mu.Unlock()
	}
	return err
}

// trim destroys boxes that are too old or too many, and prototypes that are too old.
// It lowers the targets of unused shapes, and removes claimed boxes from the ledger.
func (p *Pool) trim(ctx context.Context) {
	now := time.Now()
	var old []*warm
	var settled []string
	short := p.opts.Room != nil && !p.opts.Room(0)
	p.mu.Lock()
	for _, s := range p.shapes {
		if short && len(s.ready) > 0 {
			s.target, s.failed = len(s.ready)-1, now
		}
		if s.target > s.least() && now.Sub(s.used) > p.opts.Idle {
			s.target--
			s.used = now
		}
		if !short {
			s.target = max(s.least(), s.target)
		}
		for len(s.ready) > s.target {
			// The oldest, but first those for which Further is not done.
			i := max(0, slices.IndexFunc(s.ready, func(w *warm) bool { return !w.done }))
			old = append(old, s.ready[i])
			s.ready = slices.Delete(s.ready, i, i+1)
		}
		if s.prototype != nil && now.Sub(s.prototype.made) > prototypeAge {
			p.dropPrototypeLocked(s)
		}
		s.ready = slices.DeleteFunc(s.ready, func(w *warm) bool {
			over := now.Sub(w.since) > p.opts.MaxAge
			if over {
				old = append(old, w)
			}
			return over
		})
	}
	settled, p.listed = p.listed, nil
	p.claimed = slices.DeleteFunc(p.claimed, func(c claim) bool {
		over := now.Sub(c.at) > settle
		if over {
			c.box.asked.Store(true)
			settled = append(settled, c.id)
		}
		return over
	})
	p.mu.Unlock()
	for _, w := range old {
		p.destroy(w)
	}
	p.removeSpent(ctx)
	for i, id := range settled {
		if err := p.unlist(ctx, id); err != nil {
			if ctx.Err() == nil {
				p.log.Error("forget a box that was claimed", "error", err)
			}
			p.mu.Lock()
			p.listed = append(p.listed, settled[i+1:]...) // the others would fail, too
			p.mu.Unlock()
			break
		}
	}
}
