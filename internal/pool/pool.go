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
// If imports took long, and boxes of the shape are asked for again, the pool takes a
// snapshot of the box, the shape's prototype.
// Until the prototype is a day old, it makes the further boxes of the shape from it:
// that costs a fraction of the imports. While the CPUs are busy it makes boxes without
// imports nevertheless, because they cost less still.
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
	"log/slog"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/metrics"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
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
	Shard  sandbox.Shard // of the boxes; default: none
	// Ready prepares a new box before it can be handed out, by starting
	// interpreters.
	Ready func(ctx context.Context, b driver.Box, spec *driver.Spec) error
	// Further prepares a waiting box further, by importing modules. It takes
	// long, so it runs when there are enough boxes. If it fails, the box stays as
	// it was. It reports whether the box may become a prototype: a program that draws
	// random numbers must take new ones when it is told that it was cloned.
	Further func(ctx context.Context, b driver.Box, spec *driver.Spec) (clonable bool, err error)
	// Busy reports whether callers keep the CPUs busy. Further then waits, up to
	// a bound. Nil means never.
	Busy func() bool
	// Room reports whether the machine has that many bytes of memory to spare.
	// Nil means always. If it is false for 0, the pool destroys warm boxes.
	Room func(bytes int64) bool
	// Snapshots keeps prototypes: snapshots of boxes for which Further is done, from
	// which further boxes of their shape are made. Nil means that there are none.
	Snapshots driver.SnapshotKeeper
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
	spent   []string // prototypes whose files trim removes
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

	requests    int        // since the pool began
	prototype   *prototype // nil if there is none
	noPrototype time.Time  // the latest failure to make one, or to use it
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
	// Started and Restored are the boxes that the pool made afresh and from a prototype.
	Started, Restored int
	Prototypes        int   // current value
	PrototypeBytes    int64 // current value, on the disk
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
		if sh.prototype != nil {
			s.Prototypes++
			s.PrototypeBytes += sh.prototype.bytes
		}
	}
	return s
}

// signal wakes Run. It never blocks.
func (p *Pool) signal() {
	select {
	case p.wakeUp <- struct{}{}:
	default:
	}
}

// WaitFull waits until the pool has as many boxes as it wants, and Further is
// done for all of them. If ctx ends first, it returns an error of kind
// Unavailable.
func (p *Pool) WaitFull(ctx context.Context) error {
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	for {
		if st := p.Stats(); st.Target > 0 && st.Ready >= st.Target && st.Done == st.Ready {
			return nil
		}
		select {
		case <-ctx.Done():
			return sandbox.Errorf(sandbox.Unavailable, "no sandbox is ready: %w", ctx.Err())
		case <-t.C:
		}
	}
}
