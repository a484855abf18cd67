// Package pool keeps warm boxes: a driver around a driver, whose Create hands
// out a box that was made ahead where it has one of the right shape, and makes
// one where it has not.
//
// A warm box has never served anybody, and is handed out once. Its shape is all
// of a [driver.Spec] but the identifier, so that nothing about it must change
// when it is claimed: image, limits, network and the rest were enforced when it
// was made. A box with a workspace is always made for it.
//
// How many boxes of a shape are kept follows demand: more when none was left
// for somebody, fewer when they are not used, never more than a bound on all.
// They are made one after another, and not while somebody waits for a box that
// is being made cold, so that they do not take the processor from work. What
// takes long and not everybody needs, imports, is done for a box when there are
// as many as there should be, and not at once while the processors have other
// work.
//
// # Lifecycle
//
// The composition root puts a pool around the driver of a server. [Pool.Run]
// makes boxes until its context ends; without it a pool is empty and does
// nothing. [Pool.Close] destroys the warm boxes and closes the driver. Boxes
// that were claimed are the caller's, as those of any driver.
//
// Warm boxes belong to nobody, so the sweep of another process must be told
// that they are no strays: see [Ledger].
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

// A Ledger tells other processes which boxes are warm ones of this process. An
// entry stays until Remove, or the end of the process.
type Ledger interface {
	AddWarm(ctx context.Context, id string) error
	RemoveWarm(ctx context.Context, id string) error
}

// Options configure a Pool. Zero fields take their defaults.
type Options struct {
	Driver driver.Driver // needed
	Ledger Ledger        // needed
	// Ready brings a box that was just made to where it can be handed out:
	// interpreters started.
	Ready func(ctx context.Context, b driver.Box, spec *driver.Spec) error
	// Further brings a box on that is ready and waits: modules imported. It
	// takes long, so it is done when there are as many boxes as there should
	// be. One that it fails for stays as it was.
	Further func(ctx context.Context, b driver.Box, spec *driver.Spec) error
	// Busy reports whether the processors have work of callers: what Further does
	// waits then, for a while; nil is never.
	Busy func() bool
	// Room reports whether the machine has so many bytes of memory to spare;
	// nil is always. Where not even 0, boxes are given back.
	Room func(bytes int64) bool
	// Max bounds the warm boxes of all shapes.
	Max int // default: 8
	// AtOnce bounds the boxes that are made at one time for callers; the others
	// wait for their turn.
	AtOnce int // default: 2 for each CPU
	// MaxAge is how old a warm box may become: what it shows of the machine
	// (its image, its clock) is not to be of long ago.
	MaxAge time.Duration // default: 30 min
	// Idle is how long a box may wait before the number that is kept of its
	// shape goes down.
	Idle time.Duration // default: 2 min
	Log  *slog.Logger  // default: none
	// Metrics counts what a claim takes.
	Metrics *metrics.Set // default: none
}

// A Pool is a [driver.Driver].
type Pool struct {
	driver.Driver
	opts Options
	log  *slog.Logger

	turns  *semaphore.Weighted // of those who make a box
	wakeUp chan struct{}       // has a value when there may be something to make

	mu      sync.Mutex
	closed  bool
	shapes  map[string]*shape
	cold    int             // creations under way for callers
	making  map[string]bool // identifiers of boxes that are being made
	claimed []claim
	listed  []string // identifiers to be taken out of the ledger, where that failed
	stats   Stats
	workers sync.WaitGroup
}

// A shape is a kind of box.
type shape struct {
	spec   driver.Spec // without identifier
	ahead  bool        // kept even if nobody asks
	busy   bool        // one is being made, or brought on
	target int
	ready  []*warm   // the oldest first
	used   time.Time // when somebody asked last
	failed time.Time // when making one failed last
}

// least is how many are kept whoever asks.
func (s *shape) least() int {
	if s.ahead {
		return 1
	}
	return 0
}

// A warm box waits to be claimed.
type warm struct {
	box driver.Box
	id  string

	receipt sandbox.Receipt
	since   time.Time
	done    bool // there is nothing further to do for it
}

// A claim is a box that has an owner of its own by now, or will in a moment.
type claim struct {
	id  string
	at  time.Time
	box *claimedBox
}

// Stats are what a pool counted since its start.
type Stats struct {
	Hits, Misses, Failures int
	Unpooled               int // creations of boxes that are never made ahead
	Ready                  int // now
	Done                   int // now: of those, the ones that are as warm as they get
	Target                 int // now
	Max                    int
}

const (
	maxShapes = 32
	// retryAfter is how long a shape rests whose box could not be made.
	retryAfter = 30 * time.Second
	makeTime   = 2 * time.Minute
	tick       = time.Second
	// firstUse is how long the making of boxes waits when there is news of one
	// that is needed: most first runs have ended by then.
	firstUse = 50 * time.Millisecond
	// quiet is how long nobody must have asked for a box of a shape before one
	// is brought on: it cannot be claimed meanwhile.
	quiet = time.Second
	// spare is how long nobody must have asked for boxes of a shape before they
	// make room for those of another.
	spare = 15 * time.Second
	// patience is how long a box waits to be brought on at most, while the
	// processors have other work.
	patience = 30 * time.Second
	// settle is how long a claimed box stays in the ledger: until its owner
	// has recorded it.
	settle = 3 * time.Minute
)

// New returns a pool around a driver.
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

// Keep has a box of that shape at hand also if nobody asks.
func (p *Pool) Keep(spec *driver.Spec) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.shapeOf(spec); s != nil {
		s.ahead, s.target = true, max(1, s.target)
		p.signal()
	}
}

// Stats returns what was counted.
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

// Create hands out a warm box, or makes one.
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
	// In the order in which they came: many at once take longer, all of them.
	if err := trace.Do(ctx, "wait for a turn", func(ctx context.Context) error { return p.turns.Acquire(ctx, 1) }); err != nil {
		return nil, err
	}
	defer p.turns.Release(1)
	return p.Driver.Create(ctx, spec)
}

// take returns a warm box of the spec's shape, which is the caller's from then
// on, or nil; a cold creation is then counted until coldDone.
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

// signal tells Run to look. It never waits.
func (p *Pool) signal() {
	select {
	case p.wakeUp <- struct{}{}:
	default:
	}
}

// Run keeps boxes warm until ctx ends, whose error it returns.
func (p *Pool) Run(ctx context.Context) error {
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		p.trim(ctx) // also while there is always one more to make
		if p.makeOne(ctx) || p.bringOn(ctx) {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.wakeUp:
			// Whoever claimed one uses it now, and is not to share the
			// processors with who replaces it.
			select {
			case <-ctx.Done():
			case <-time.After(firstUse):
			}
		case <-t.C:
		}
	}
}

// makeOne makes a warm box of the shape that lacks most, and reports whether
// there was one to make. Nothing is made while a caller waits for a cold one.
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

// bringOn does what is further to be done for one box, and reports whether
// there was one. Meanwhile the box cannot be claimed. Nothing is done while a
// caller waits for a cold one.
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
		// By the time that it has answered, the guest has seen the end of the
		// stream that Further used. Else that would be the first thing that it
		// does for whoever claims the box.
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

// make adds a warm box to a shape. If it fails, nothing is left of the box.
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
	// The ledger first: a box that is not in it is a stray.
	if err := p.opts.Ledger.AddWarm(ctx, w.id); err != nil {
		return err
	}
	spec := s.spec
	spec.ID = w.id
	if p.opts.Ready != nil {
		spec.Streams = 2 // one for Ready, and one for whom it is for
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

// List returns the boxes that are not warm: those are no one's to look after
// but the pool's.
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

// Discard removes what is left of a box.
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
