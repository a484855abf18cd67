// Package fair divides a scarce resource of the server between principals, so
// that one principal cannot take it from the others.
//
// A [Pool] is one resource: sandboxes, sessions, bytes in flight, pulls. It has
// a total, and counts the units that each principal holds. A [Hold] is a number
// of units that one principal holds, from [Pool.Acquire] until [Hold.Release].
//
// Two rules keep the resource fair:
//
//   - A hold that cannot be evicted is granted only while its principal holds no
//     more than the free units. One principal alone stops at half of the total, and
//     two at a third each. So units are always left for the next principal.
//   - A hold that can be evicted is granted while enough units are free. Otherwise
//     the pool evicts the least recently used hold of the principal that holds most.
//     It prefers idle holds.
//
// Requests of at most [Options.Small] units have a reserve of their own, so
// they never wait behind large ones. Of the waiting requests, the pool grants
// the request of the principal that holds the fewest units. If several hold
// equally few, it grants the oldest request.
//
// The package knows nothing about the resources. The engine and the edges (MCP,
// HTTP) make one pool for each of theirs and keep it to themselves. A pool has
// no goroutine and needs no Close. All methods are safe for concurrent use.
package fair

import (
	"container/list"
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Options describe the resource of a [Pool].
type Options struct {
	// Name is the name of the resource in errors and metrics, in the plural:
	// "sandboxes".
	Name string
	// Total is the number of units, at least 1.
	Total int64
	// Reserve is the part of Total that only requests of at most Small units
	// may use. Zero means no reserve.
	Small, Reserve int64
	// MaxWaiting bounds the waiting requests of one principal. Zero means
	// [DefaultMaxWaiting].
	MaxWaiting int
	// RetryAfter is the delay before a retry that errors name. Zero means one
	// second.
	RetryAfter time.Duration
	// Look is how often a waiting request asks holders again whether they are
	// idle now. Zero means a quarter of a second.
	Look time.Duration
	// Format formats a number of units for errors. Nil formats it as a decimal
	// number.
	Format func(units int64) string
}

// DefaultMaxWaiting is the default of [Options.MaxWaiting].
const DefaultMaxWaiting = 256

// A Request asks for units of a pool.
type Request struct {
	// Principal is the principal that will hold the units.
	Principal sandbox.Principal
	// Units is the number of units, at least 1.
	Units int64
	// Evict asks the holder to give the units up, and reports whether it will.
	// If it reports true, the holder must call [Hold.Release] when the units
	// are free, at once or later. Unless forced, a holder refuses while the
	// hold is in use. The pool uses force only on a principal above its share,
	// for a principal that holds less.
	//
	// Evict is called without locks of the pool. It must not block, and must
	// not acquire from the same pool. With a nil Evict, the hold cannot be
	// evicted.
	Evict func(forced bool) bool
}

// A Pool is one resource.
type Pool struct {
	o Options

	// evicting lets one request at a time choose holds to evict. It is locked
	// before mu.
	evicting sync.Mutex

	mu       sync.Mutex
	used     int64 // units of all holds, including leaving ones
	evictees int   // number of holds that can be evicted
	clock    int64 // counts the uses of holds
	leaving  int64 // units of holds whose holder agreed to give them up
	accounts map[sandbox.Principal]*account
	queue    []*waiter // oldest first
	stats    Stats     // only its counters are set
}

// An account has the units that one principal holds, and the number of its
// waiting requests. It exists while there is either.
type account struct {
	held, small, leaving int64      // units; small are those of small holds
	holds                *list.List // of *Hold, the least recently used first
	waiting              int
}

// kept returns the principal's units without the units that it is giving up.
func (a *account) kept() int64 { return a.held - a.leaving }

// A Hold is a number of units that a principal holds. The holder must call
// Release.
type Hold struct {
	pool    *Pool
	acct    *account
	elem    *list.Element // in acct.holds; nil once released
	who     sandbox.Principal
	units   int64
	small   bool
	leaving bool  // its holder agreed to give it up
	used    int64 // by the pool's clock
	evict   func(bool) bool
}

// A waiter is a waiting request.
type waiter struct {
	Request
	grows   *Hold // the hold that the units are for, if it exists already
	small   bool
	granted chan struct{} // closed once hold is set
	hold    *Hold
}

// New returns a pool.
func New(o Options) *Pool {
	o.Total = max(1, o.Total)
	if o.MaxWaiting == 0 {
		o.MaxWaiting = DefaultMaxWaiting
	}
	if o.RetryAfter == 0 {
		o.RetryAfter = time.Second
	}
	if o.Look == 0 {
		o.Look = 250 * time.Millisecond
	}
	if o.Format == nil {
		o.Format = func(n int64) string { return strconv.FormatInt(n, 10) }
	}
	return &Pool{o: o, accounts: map[sandbox.Principal]*account{}}
}

// Acquire waits until the principal holds the units, or ctx ends. The caller
// must release the hold. The error is of kind [sandbox.Exhausted], says why,
// and names the delay before a retry. If ctx ended, it also wraps the cause of
// that. Requests for more than the pool can ever grant, and requests above
// MaxWaiting, fail at once.
func (p *Pool) Acquire(ctx context.Context, r Request) (*Hold, error) {
	w, err := p.enqueue(r, nil)
	if err != nil {
		return nil, err
	}
	select {
	case <-w.granted:
		return w.hold, nil
	default:
	}
	look := time.NewTicker(p.o.Look)
	defer look.Stop()
	for {
		p.makeRoom(w)
		select {
		case <-w.granted:
			return w.hold, nil
		case <-look.C:
		case <-ctx.Done():
			if h := p.leave(w); h != nil {
				return h, nil
			}
			return nil, p.refuse(w, context.Cause(ctx))
		}
	}
}

// Try is [Pool.Acquire] without waiting. It succeeds if the units are free, or
// are given up at once.
func (p *Pool) Try(r Request) (*Hold, error) { return p.try(r, nil) }

func (p *Pool) try(r Request, grows *Hold) (*Hold, error) {
	w, err := p.enqueue(r, grows)
	if err != nil {
		return nil, err
	}
	select {
	case <-w.granted:
		return w.hold, nil
	default:
	}
	p.makeRoom(w)
	if h := p.leave(w); h != nil {
		return h, nil
	}
	return nil, p.refuse(w, nil)
}

// Take returns a hold of units that the principal has already, even if they are
// not free. A server that starts uses it for units that an earlier process
// granted.
func (p *Pool) Take(r Request) *Hold {
	r.Units = max(1, r.Units)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.grant(p.account(r.Principal), &waiter{Request: r})
}

// enqueue adds a request to the queue, and grants it if that is possible now.
func (p *Pool) enqueue(r Request, grows *Hold) (*waiter, error) {
	r.Units = max(1, r.Units)
	p.mu.Lock()
	defer p.mu.Unlock()
	size := r.Units
	if grows != nil {
		size += grows.units
	}
	w := &waiter{Request: r, grows: grows, small: size <= p.o.Small, granted: make(chan struct{})}
	if most := p.limit(w.small); size > most {
		p.stats.Refused++
		return nil, sandbox.Errorf(sandbox.Exhausted, "one request needs %s %s, but the server allows only %s",
			p.o.Format(size), p.o.Name, p.o.Format(most))
	}
	a := p.account(r.Principal)
	if a.waiting >= p.o.MaxWaiting {
		p.stats.Refused++
		return nil, p.refusal("%d of your requests already wait for %s", a.waiting, p.o.Name)
	}
	a.waiting++
	p.queue = append(p.queue, w)
	p.dispatch()
	if w.hold == nil {
		p.stats.Waited++
	}
	return w, nil
}

// leave removes a request from the queue, and returns nil. If the request was
// granted, it returns the hold.
func (p *Pool) leave(w *waiter) *Hold {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.hold != nil {
		return w.hold
	}
	p.dequeue(w)
	p.stats.Refused++
	// Requests behind it may be granted now.
	p.dispatch()
	return nil
}

// dequeue removes w from the queue. p.mu is held.
func (p *Pool) dequeue(w *waiter) {
	for i, o := range p.queue {
		if o == w {
			p.queue = append(p.queue[:i], p.queue[i+1:]...)
			break
		}
	}
	a := p.accounts[w.Principal]
	a.waiting--
	p.close(w.Principal, a)
}

// account returns the principal's account, and creates it if necessary. p.mu is
// held.
func (p *Pool) account(who sandbox.Principal) *account {
	a := p.accounts[who]
	if a == nil {
		a = &account{holds: list.New()}
		p.accounts[who] = a
	}
	return a
}

// close removes an account that has neither holds nor requests. p.mu is held.
func (p *Pool) close(who sandbox.Principal, a *account) {
	if a.waiting == 0 && a.holds.Len() == 0 {
		delete(p.accounts, who)
	}
}

// limit returns the units that all small requests, or all large ones, may use
// together.
func (p *Pool) limit(small bool) int64 {
	if small {
		return p.o.Total
	}
	return p.o.Total - p.o.Reserve
}

// fits reports whether w can be granted now. p.mu is held.
func (p *Pool) fits(w *waiter) bool {
	free := p.limit(w.small) - p.used
	if w.Units > free {
		return false
	}
	if w.Evict != nil {
		return true
	}
	a := p.accounts[w.Principal]
	held := a.held
	if w.small {
		held = a.small // large holds must not make a small request wait
	}
	return held == 0 || held+w.Units <= free
}

// dispatch grants requests while it can. p.mu is held.
func (p *Pool) dispatch() {
	for {
		w := p.next()
		if w == nil {
			return
		}
		a := p.accounts[w.Principal]
		w.hold = p.grant(a, w)
		p.dequeue(w)
		close(w.granted)
	}
}

// next returns the request to grant now, or nil. Small requests come first,
// then requests of the principal that holds least, then the oldest. p.mu is
// held.
func (p *Pool) next() *waiter {
	for _, small := range []bool{true, false} {
		var best *waiter
		blocked := false
		for _, w := range p.queue {
			if w.small != small {
				continue
			}
			held := p.accounts[w.Principal].held
			if p.fits(w) {
				if best == nil || held < p.accounts[best.Principal].held {
					best = w
				}
			} else if held == 0 && !small {
				// It waits only for others. No large request may overtake it, or it
				// could wait forever.
				blocked = true
				break
			}
		}
		if best != nil && (!blocked || p.accounts[best.Principal].held == 0) {
			return best
		}
	}
	return nil
}

// grant gives w its units. p.mu is held.
func (p *Pool) grant(a *account, w *waiter) *Hold {
	if h := w.grows; h != nil {
		if h.elem != nil { // else it was released meanwhile, and needs no more
			h.change(w.Units)
		}
		return h
	}
	h := &Hold{pool: p, acct: a, who: w.Principal}
	h.elem = a.holds.PushBack(h)
	h.use()
	h.evictBy(w.Evict)
	h.change(w.Units)
	return h
}

// use makes the hold the most recently used one. p.mu is held.
func (h *Hold) use() {
	h.acct.holds.MoveToBack(h.elem)
	h.pool.clock++
	h.used = h.pool.clock
}

// evictBy sets the function that evicts the hold. p.mu is held.
func (h *Hold) evictBy(evict func(bool) bool) {
	if h.evict != nil {
		h.pool.evictees--
	}
	if h.evict = evict; evict != nil {
		h.pool.evictees++
	}
}

// change adds by to the hold's units, which may be negative, and updates all
// counts. p.mu is held.
func (h *Hold) change(by int64) {
	p, a := h.pool, h.acct
	if h.small {
		a.small -= h.units
	}
	h.units += by
	if h.small = h.units <= p.o.Small; h.small {
		a.small += h.units
	}
	p.used += by
	a.held += by
	if h.leaving {
		p.leaving += by
		a.leaving += by
	}
}

// Touch records a use of the hold, because the pool evicts the least recently
// used hold first. h may be nil.
func (h *Hold) Touch() {
	if h == nil {
		return
	}
	h.pool.mu.Lock()
	defer h.pool.mu.Unlock()
	if h.elem != nil {
		h.use()
	}
}

// Evictable sets the function by which the pool evicts the hold, as described
// at [Request.Evict]. With nil, the hold cannot be evicted.
func (h *Hold) Evictable(evict func(forced bool) bool) {
	h.pool.mu.Lock()
	defer h.pool.mu.Unlock()
	if h.elem != nil {
		h.evictBy(evict)
	}
}

// Resize sets the number of units of the hold, at least 1. Surplus units are
// given back at once. More units are granted only if they are free, or are
// given up at once. Otherwise the hold stays unchanged, and the error is as for
// [Pool.Try]. A released hold stays released.
func (h *Hold) Resize(units int64) error {
	by := max(1, units) - h.Units()
	if by > 0 {
		h.pool.mu.Lock()
		r := Request{Principal: h.who, Units: by, Evict: h.evict}
		h.pool.mu.Unlock()
		_, err := h.pool.try(r, h)
		return err
	}
	h.pool.mu.Lock()
	defer h.pool.mu.Unlock()
	if h.elem != nil && by < 0 {
		h.change(by)
		h.pool.dispatch()
	}
	return nil
}

// Units returns the number of units of the hold.
func (h *Hold) Units() int64 {
	h.pool.mu.Lock()
	defer h.pool.mu.Unlock()
	return h.units
}

// Release gives all units back. It may be called more than once, and h may be
// nil.
func (h *Hold) Release() {
	if h == nil {
		return
	}
	h.pool.mu.Lock()
	defer h.pool.mu.Unlock()
	if h.elem == nil {
		return
	}
	h.remove()
	h.pool.dispatch()
}

// Stay withdraws the holder's agreement to give the hold up, for a holder that
// turned out unable to. The pool then evicts another hold first. h may be nil.
func (h *Hold) Stay() {
	if h == nil {
		return
	}
	h.pool.mu.Lock()
	defer h.pool.mu.Unlock()
	if h.stay() {
		h.use()
	}
}

// stay makes a leaving hold stay, and reports whether it was leaving. p.mu is
// held.
func (h *Hold) stay() bool {
	if h.elem == nil || !h.leaving {
		return false
	}
	h.pool.leaving -= h.units
	h.acct.leaving -= h.units
	h.pool.stats.Evicted--
	h.leaving = false
	return true
}

// remove removes the hold from its account. p.mu is held.
func (h *Hold) remove() {
	h.change(-h.units)
	h.evictBy(nil)
	h.acct.holds.Remove(h.elem)
	h.elem = nil
	h.pool.close(h.who, h.acct)
}

// refuse returns the error for a request that was not granted.
func (p *Pool) refuse(w *waiter, cause error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var held int64
	if a := p.accounts[w.Principal]; a != nil {
		held = a.held
	}
	if held > 0 && w.Units <= p.limit(w.small)-p.used {
		return p.refusal("you hold %s of the server's %s %s, which is your share; others may need the rest",
			p.o.Format(held), p.o.Format(p.o.Total), p.o.Name)
	}
	if cause != nil {
		return p.refusal("all %s %s of the server are in use: %w", p.o.Format(p.o.Total), p.o.Name, cause)
	}
	return p.refusal("all %s %s of the server are in use", p.o.Format(p.o.Total), p.o.Name)
}

func (p *Pool) refusal(format string, args ...any) error {
	err := sandbox.WithRetryAfter(sandbox.Errorf(sandbox.Exhausted, format, args...), p.o.RetryAfter)
	return sandbox.WithHint(err, "end some of yours, or try again in %v", p.o.RetryAfter)
}

// Stats are the figures of a pool at one moment.
type Stats struct {
	Name                     string
	Total, Used              int64 // units
	Principals, Waiting      int   // principals that hold units or wait; waiting requests
	Waited, Refused, Evicted int64 // requests that had to wait; requests refused; holds evicted
	MostHeld                 int64 // units of the principal that holds most
}

// Stats returns the figures of the pool.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Name, s.Total, s.Used = p.o.Name, p.o.Total, p.used
	s.Principals, s.Waiting = len(p.accounts), len(p.queue)
	for _, a := range p.accounts {
		s.MostHeld = max(s.MostHeld, a.held)
	}
	return s
}

// Held returns the number of units that a principal holds.
func (p *Pool) Held(who sandbox.Principal) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.accounts[who]; a != nil {
		return a.held
	}
	return 0
}
