package fair

import "container/heap"

// A pass selects the holds that makeRoom asks for.
type pass int

const (
	idleAboveShare   pass = iota // idle holds of principals above their share
	forcedAboveShare             // all holds of principals above their share
	idleOfAll                    // idle holds of all principals
)

// makeRoom asks holders to give up the units that w needs, in the order of the
// passes. Within a pass, the principal that holds most comes first. Of
// principals that hold equally much, the one whose oldest hold is least
// recently used comes first, and is asked for that hold first.
func (p *Pool) makeRoom(w *waiter) {
	p.mu.Lock()
	none := p.evictees == 0
	p.mu.Unlock()
	if none {
		return // many requests may wait, and check often
	}
	p.evicting.Lock()
	defer p.evicting.Unlock()
	for _, pass := range []pass{idleAboveShare, forcedAboveShare, idleOfAll} {
		i := p.inquire(w, pass)
		for {
			h, evict := i.next()
			if h == nil {
				break
			}
			if !evict(pass == forcedAboveShare) {
				p.refusedToLeave(h)
			}
		}
	}
}

// An inquiry is one pass of makeRoom. It is a heap of the accounts that may
// have holds to ask for, so that a pass looks at each hold only once.
type inquiry struct {
	p      *Pool
	w      *waiter
	pass   pass
	before int64 // units of the requests that are granted before w
	left   []*inquired
}

// An inquired account may have holds to ask for.
type inquired struct {
	*account
	holds      []*Hold // not asked yet, least recently used first; nil until begun
	begun      bool
	kept, used int64 // sort keys of the heap
}

func (i *inquiry) Len() int { return len(i.left) }
func (i *inquiry) Less(a, b int) bool {
	x, y := i.left[a], i.left[b]
	return x.kept > y.kept || x.kept == y.kept && x.used < y.used
}
func (i *inquiry) Swap(a, b int) { i.left[a], i.left[b] = i.left[b], i.left[a] }
func (i *inquiry) Push(x any)    { i.left = append(i.left, x.(*inquired)) } //nolint:forcetypeassert // for heap alone
func (i *inquiry) Pop() any {
	last := i.left[len(i.left)-1]
	i.left = i.left[:len(i.left)-1]
	return last
}

// inquire begins a pass.
func (p *Pool) inquire(w *waiter, pass pass) *inquiry {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := &inquiry{p: p, w: w, pass: pass, before: p.before(w)}
	if w.hold != nil || i.needs() <= 0 {
		return i
	}
	for _, a := range p.accounts {
		if e := a.holds.Front(); e != nil && (pass == idleOfAll || p.aboveShare(a.kept())) {
			i.left = append(i.left, &inquired{account: a, kept: a.kept(), used: e.Value.(*Hold).used}) //nolint:forcetypeassert // the list holds nothing else
		}
	}
	heap.Init(i)
	return i
}

// refusedToLeave keeps a hold whose holder refused. Its place in the order of
// use stays the same.
func (p *Pool) refusedToLeave(h *Hold) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h.stay()
}

// next returns the next hold to ask for, and its evict function. It returns nil
// if no more units are needed or no hold is left. The hold counts as leaving
// already, because its holder may release it while it is asked.
func (i *inquiry) next() (*Hold, func(forced bool) bool) {
	p, w := i.p, i.w
	p.mu.Lock()
	defer p.mu.Unlock()
	own := p.accounts[w.Principal]
	for len(i.left) > 0 {
		if w.hold != nil || i.needs() <= 0 {
			return nil, nil
		}
		gets := own.held + w.Units
		if i.pass == forcedAboveShare && own.held > 0 && p.aboveShare(gets) {
			return nil, nil
		}
		top := i.left[0]
		if kept := top.account.kept(); kept != top.kept {
			top.kept = kept
			heap.Fix(i, 0)
			continue
		}
		h := top.take()
		if h == nil || !i.mayAsk(top, h, own, gets) {
			heap.Pop(i)
			continue
		}
		h.leaving = true
		p.leaving += h.units
		h.acct.leaving += h.units
		p.stats.Evicted++
		return h, h.evict
	}
	return nil, nil
}

// take returns the account's next hold that may be asked for, or nil. The
// pool's mu is held.
func (a *inquired) take() *Hold {
	if !a.begun {
		a.begun = true
		for e := a.account.holds.Front(); e != nil; e = e.Next() {
			a.holds = append(a.holds, e.Value.(*Hold)) //nolint:forcetypeassert // the list holds nothing else
		}
	}
	for len(a.holds) > 0 {
		h := a.holds[0]
		a.holds = a.holds[1:]
		if h.elem != nil && !h.leaving && h.evict != nil {
			return h
		}
	}
	return nil
}

// mayAsk reports whether an account may be asked for h on behalf of w. own is
// the account of w's principal, and gets the units that this principal would
// hold then. p.mu is held.
func (i *inquiry) mayAsk(a *inquired, h *Hold, own *account, gets int64) bool {
	switch {
	case i.pass != idleOfAll && !i.p.aboveShare(a.account.kept()):
		return false
	case i.pass == forcedAboveShare:
		// By force, a principal must not get more than the other one keeps.
		// Otherwise the two would evict each other forever.
		return a.account != own && a.account.kept()-h.units >= gets
	default:
		// A principal may take idle holds of a principal that holds at least as
		// much as it would hold itself.
		return a.account == own || a.account.kept() >= gets
	}
}

// aboveShare reports whether units are more than a share. A share is the total
// divided by the number of principals that hold units or wait. p.mu is held.
func (p *Pool) aboveShare(units int64) bool {
	return units*int64(len(p.accounts)) > p.o.Total
}

// needs returns how many units are missing for w and for the requests that are
// granted before it. Units that are being given up do not count as missing. The
// pool's mu is held.
func (i *inquiry) needs() int64 {
	p, w := i.p, i.w
	return w.Units - (p.limit(w.small) - p.used) - p.leaving + i.before
}

// before returns the total units of the requests that are granted before w.
// p.mu is held.
func (p *Pool) before(w *waiter) (units int64) {
	own := p.accounts[w.Principal]
	if own == nil {
		return 0 // w was granted and released
	}
	earlier := true // requests in the queue before w came earlier
	for _, o := range p.queue {
		if o == w {
			earlier = false
			continue
		}
		if held := p.accounts[o.Principal].held; held < own.held || held == own.held && earlier {
			units += o.Units
		}
	}
	return units
}
