package fair

import (
	"cmp"
	"container/list"
	"slices"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A pass is which holds makeRoom asks for.
type pass int

const (
	idleAboveShare   pass = iota // not in use, of principals above their share
	forcedAboveShare             // in use or not, of the same
	idleOfAll                    // not in use, of all principals
)

// makeRoom asks holders to give up as much as w needs, in the order of the
// passes. Within a pass it asks the principal first that holds most, and for the
// hold first that was used longest ago.
func (p *Pool) makeRoom(w *waiter) {
	p.evicting.Lock()
	defer p.evicting.Unlock()
	for _, pass := range []pass{idleAboveShare, forcedAboveShare, idleOfAll} {
		asked := inquiry{map[*Hold]bool{}, map[*account]*list.Element{}}
		for {
			h, evict := p.victim(w, pass, asked)
			if h == nil {
				break
			}
			asked.holds[h] = true
			if !evict(pass == forcedAboveShare) {
				p.refusedToLeave(h)
			}
		}
	}
}

// An inquiry is what a pass has asked: holds, and the last of each account, after
// which the others follow. Without it a pass over many holds in use would look at
// all of them for each.
type inquiry struct {
	holds map[*Hold]bool
	last  map[*account]*list.Element
}

// first is where the holds of an account begin that may not have been asked.
func (i inquiry) first(a *account) *list.Element {
	if e := i.last[a]; e != nil {
		if h := e.Value.(*Hold); h.elem == e && e.Next() != nil { //nolint:forcetypeassert // the list holds nothing else
			return e.Next()
		}
	}
	return a.holds.Front()
}

// refusedToLeave keeps a hold that is in use where it is in the order of use.
func (p *Pool) refusedToLeave(h *Hold) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h.stay()
}

// victim is the next hold to ask for, and how, or nil if none is needed or left. The
// hold counts as leaving already, as its holder may release it while it is asked.
func (p *Pool) victim(w *waiter, pass pass, asked inquiry) (*Hold, func(forced bool) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.hold != nil || p.needs(w) <= 0 {
		return nil, nil
	}
	own := p.accounts[w.Principal]
	gets := own.held + w.Units
	if pass == forcedAboveShare && own.held > 0 && p.aboveShare(gets) {
		return nil, nil
	}
	type principal struct {
		name sandbox.Principal
		*account
	}
	order := make([]principal, 0, len(p.accounts))
	for name, a := range p.accounts {
		switch {
		case pass != idleOfAll && !p.aboveShare(a.kept()):
		case pass == forcedAboveShare && a == own:
		default:
			order = append(order, principal{name, a})
		}
	}
	slices.SortFunc(order, func(a, b principal) int {
		return cmp.Or(cmp.Compare(b.kept(), a.kept()), cmp.Compare(a.name, b.name))
	})
	for _, a := range order {
		for e := asked.first(a.account); e != nil; e = e.Next() {
			h := e.Value.(*Hold) //nolint:forcetypeassert // the list holds nothing else
			if h.leaving || h.evict == nil || asked.holds[h] {
				continue
			}
			// By force a principal must not get more than the other keeps:
			// the two would take turns for ever.
			if pass == forcedAboveShare && a.kept()-h.units < gets {
				continue
			}
			// A principal takes idle holds of those that hold as much as it
			// would then, and never of those that hold less.
			if a.account != own && a.kept() < gets {
				continue
			}
			asked.last[a.account] = e
			h.leaving = true
			p.leaving += h.units
			a.leaving += h.units
			p.stats.Evicted++
			return h, h.evict
		}
	}
	return nil, nil
}

// aboveShare reports whether units are more than a share: the total divided by
// the number of principals that hold something or wait. p.mu is held.
func (p *Pool) aboveShare(units int64) bool {
	return units*int64(len(p.accounts)) > p.o.Total
}

// needs is how many units are missing for w and for the requests that are granted
// before it, without those that are being given up. p.mu is held.
func (p *Pool) needs(w *waiter) int64 {
	own := p.accounts[w.Principal].held
	need := w.Units - (p.limit(w.small) - p.used) - p.leaving
	before := true // those in the queue before w came earlier
	for _, o := range p.queue {
		if o == w {
			before = false
			continue
		}
		if held := p.accounts[o.Principal].held; held < own || held == own && before {
			need += o.Units
		}
	}
	return need
}
