// Package pool keeps warm boxes. It is a driver around a driver. Its Create hands
// out a warm box of the right shape, or makes a box if there is none.
//
// A warm box has never run a caller's code, and is handed out once. Its shape is
// the whole [driver.Spec] except the identifier, the streams, and the limits Idle
// and Lifetime. So a claim changes nothing about the box: image, limits, network
// and the rest were enforced when it was made. A box with a workspace is never
// made ahead.
//
// The number of boxes of a shape follows demand. It grows when a caller found
// none, and falls when boxes are not used. A bound on all boxes limits it. The
// pool makes one box at a time, and none while a caller waits for a cold box. So
// it takes no CPU time from callers. Imports take long and not every caller
// needs them. So the pool does them when it has enough boxes, and delays them
// while the CPUs are busy.
//
// # Lifecycle
//
// The composition root puts a pool around the driver of a server. [Pool.Run]
// makes boxes until its context ends. Without Run, the pool stays empty.
// [Pool.Close] destroys the warm boxes and closes the driver. The caller owns the
// boxes that it claimed, like boxes of any driver.
//
// Warm boxes have no owner. The [Ledger] keeps the sweep of another process from
// destroying them as strays.
package pool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/metrics"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/trace"
)

// A Ledger lists the warm boxes of this process for other processes. An entry
// stays until RemoveWarm, or until the process ends.
type Ledger interface {
	AddWarm(ctx context.Context, id string) error
	RemoveWarm(ctx context.Context, id string) error
}

// Options configure a Pool. Zero fields take their defaults.
type Options struct {
	Driver driver.Driver // required
	Ledger Ledger        // required
	// Ready prepares a new box before it can be handed out, by starting
	// interpreters.
	Ready func(ctx context.Context, b driver.Box, spec *driver.Spec) error
	// Further prepares a waiting box further, by importing modules. It takes
	// long, so it runs when there are enough boxes. If it fails, the box stays as
	// it was.
	Further func(ctx context.Context, b driver.Box, spec *driver.Spec) error
	// Busy reports whether callers keep the CPUs busy. Further then waits, up to
	// a bound. Nil means never.
	Busy func() bool
	// Room reports whether the machine has that many bytes of memory to spare.
	// Nil means always. If it is false for 0, the pool destroys warm boxes.
	Room func(bytes int64) bool
	// Max bounds the warm boxes of all shapes.
	Max int // default: 8
	// AtOnce bounds the boxes that are made for callers at one time. Further
	// callers wait in order.
	AtOnce int // default: 2 for each CPU
	// MaxAge is the maximum age of a warm box. It limits how old the box's view
	// of its image and of the clock can be.
	MaxAge time.Duration // default: 30 min
	// Idle is the time without a request after which the target of a shape falls.
	Idle time.Duration // default: 2 min
	Log  *slog.Logger  // default: none
	// Metrics records the duration of claims.
	Metrics *metrics.Set // default: none
}

// A Pool is a [driver.Driver].
type Pool struct {
	driver.Driver
	opts Options
	log  *slog.Logger

	turns  *semaphore.Weighted // of callers that make a box
	wakeUp chan struct{}       // has a value if there may be a box to make

	mu      sync.Mutex
	closed  bool
	shapes  map[string]*shape
	cold    int             // creations under way for callers
	making  map[string]bool // identifiers of boxes that are being made or prepared further
	claimed []claim
	listed  []string // identifiers whose removal from the ledger failed
	stats   Stats
	workers sync.WaitGroup
}

// A shape is a kind of box: boxes of one shape are interchangeable.
type shape struct {
	spec   driver.Spec // without an identifier
	ahead  bool        // kept without requests, by Keep
	busy   bool        // a box is being made or prepared further
	target int
	ready  []*warm   // oldest first
	used   time.Time // the latest request
	failed time.Time // the latest failure to make a box
}

// least returns the number of boxes that are kept without requests.
func (s *shape) least() int {
	if s.ahead {
		return 1
	}
	return 0
}

// A warm box waits for a claim.
type warm struct {
	box driver.Box
	id  string

	receipt sandbox.Receipt
	since   time.Time
	done    bool // Further has nothing left to do
}

// A claim is a box that was handed out and that the engine may not have recorded
// yet.
type claim struct {
	id  string
	at  time.Time
	box *claimedBox
}

// Stats are the counts of a pool since its start.
type Stats struct {
	Hits, Misses, Failures int
	Unpooled               int // boxes of shapes that the pool does not keep
	Ready                  int // current value
	Done                   int // current value: the ready boxes for which Further is done
	Target                 int // current value
	Max                    int
}

const (
	maxShapes = 32
	// retryAfter is the pause before a shape is retried after a failure.
	retryAfter = 30 * time.Second
	makeTime   = 2 * time.Minute
	tick       = time.Second
	// firstUse delays making boxes after a signal, so that the first run in a
	// claimed box has the CPUs to itself. Most first runs end within it.
	firstUse = 50 * time.Millisecond
	// quiet is the time without a request for a shape before Further runs on one
	// of its boxes, because the box cannot be claimed meanwhile.
	quiet = time.Second
	// spare is the time without a request after which a shape may lose boxes to
	// another shape.
	spare = 15 * time.Second
	// patience bounds how long Further waits while the CPUs are busy.
	patience = 30 * time.Second
	// settle is how long a claimed box stays in the ledger. Its owner must record
	// it within this time.
	settle = 3 * time.Minute
)

// New returns a pool around opts.Driver. The error wraps [sandbox.Invalid] if the
// driver or the ledger is nil.
func New(opts Options) (*Pool, error) {
	if opts.Driver == nil || opts.Ledger == nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "new pool: a driver and a ledger are needed")
	}
	if opts.Max == 0 {
		opts.Max = 8
	}
	if opts.AtOnce == 0 {
		opts.AtOnce = 2 * runtime.NumCPU()
	}
	if opts.MaxAge == 0 {
		opts.MaxAge = 30 * time.Minute
	}
	if opts.Idle == 0 {
		opts.Idle = 2 * time.Minute
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	return &Pool{
		Driver: opts.Driver, opts: opts, log: opts.Log,
		turns:  semaphore.NewWeighted(int64(opts.AtOnce)),
		wakeUp: make(chan struct{}, 1),
		shapes: map[string]*shape{}, making: map[string]bool{},
	}, nil
}

// Unwrap returns the driver that makes the boxes.
func (p *Pool) Unwrap() driver.Driver { return p.Driver }

// Keep makes the pool keep a box of that shape even without requests.
func (p *Pool) Keep(spec *driver.Spec) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.shapeOf(spec); s != nil {
		s.ahead, s.target = true, max(1, s.target)
		p.signal()
	}
}

// Stats returns the counts.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Max = p.opts.Max
	for _, sh := range p.shapes {
		s.Ready += len(sh.ready)
		for _, w := range sh.ready {
			if w.done {
				s.Done++
			}
		}
		s.Target += sh.target
	}
	return s
}

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
			p.opts.Metrics.Claimed(time.Since(begun))
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
	s := p.shapeOf(spec)
	if s == nil || p.closed {
		p.cold++
		p.stats.Unpooled++
		return nil, nil
	}
	s.used = time.Now()
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

// signal wakes Run. It never blocks.
func (p *Pool) signal() {
	select {
	case p.wakeUp <- struct{}{}:
	default:
	}
}

// Run keeps boxes warm until ctx ends, and returns ctx's error.
func (p *Pool) Run(ctx context.Context) error {
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		p.trim(ctx) // in every round, even if there is always a box to make
		if p.makeOne(ctx) || p.bringOn(ctx) {
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
		made := p.yield(s)
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
	err := p.make(ctx, s)
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

// bringOn runs Further on one box, and returns false if there was none. The box
// cannot be claimed meanwhile. It does nothing while a caller waits for a cold
// box.
func (p *Pool) bringOn(ctx context.Context) bool {
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

// make adds a warm box to a shape. If it fails, it destroys the box.
func (p *Pool) make(ctx context.Context, s *shape) (err error) {
	ctx, cancel := context.WithTimeout(ctx, makeTime)
	defer cancel()
	begun := time.Now()
	w := &warm{id: sandbox.NewID(), done: p.opts.Further == nil}
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

// Close destroys the warm boxes, and closes the driver.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	var all []*warm
	for _, s := range p.shapes {
		all = append(all, s.ready...)
		s.ready = nil
	}
	p.mu.Unlock()
	p.workers.Wait()
	var wg sync.WaitGroup
	for _, w := range all {
		wg.Go(func() { p.destroy(w) })
	}
	wg.Wait()
	return p.Driver.Close()
}
