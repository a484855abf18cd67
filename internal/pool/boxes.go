package pool

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/driver"
)

// List returns all boxes except the warm ones, which only the pool manages.
func (p *Pool) List(ctx context.Context) ([]string, error) {
	refs, err := p.Driver.List(ctx)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	waiting := map[string]bool{}
	for _, s := range p.shapes {
		for _, w := range s.ready {
			waiting[w.box.Ref()] = true
		}
	}
	return slices.DeleteFunc(refs, func(ref string) bool {
		for id := range p.making {
			if strings.Contains(ref, id) {
				return true
			}
		}
		return waiting[ref]
	}), nil
}

// Discard removes the remains of a box.
func (p *Pool) Discard(ctx context.Context, ref string) error {
	p.mu.Lock()
	for _, c := range p.claimed {
		if c.box.Ref() == ref {
			c.box.asked.Store(true)
		}
	}
	p.mu.Unlock()
	return p.Driver.Discard(ctx, ref)
}

// Close destroys the warm boxes and the prototypes, and closes the driver.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	var all []*warm
	for _, s := range p.shapes {
		all = append(all, s.ready...)
		s.ready = nil
		p.dropPrototypeLocked(s)
	}
	p.mu.Unlock()
	p.workers.Wait()
	var wg sync.WaitGroup
	for _, w := range all {
		wg.Go(func() { p.destroy(w) })
	}
	wg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), makeTime)
	defer cancel()
	p.removeSpent(ctx)
	return p.Driver.Close()
}

// Waiting returns the warm boxes of all processes that share a ledger. recorded
// are the identifiers in the ledger, and used the references of the boxes of
// sandboxes. An identifier stays in the ledger for a while after its box was
// claimed or destroyed.
func Waiting(ctx context.Context, d driver.Driver, recorded, used []string) ([]string, error) {
	if p, ok := d.(*Pool); ok {
		d = p.Driver // the pool does not list its warm boxes
	}
	refs, err := d.List(ctx)
	if err != nil {
		return nil, err
	}
	refs = slices.DeleteFunc(refs, func(ref string) bool { return slices.Contains(used, ref) })
	var waiting []string
	for _, id := range recorded {
		if slices.ContainsFunc(refs, func(ref string) bool { return strings.Contains(ref, id) }) {
			waiting = append(waiting, id)
		}
	}
	slices.Sort(waiting)
	return waiting, nil
}
