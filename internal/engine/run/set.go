package run

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/engine/runlog"
	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/metrics"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// Timeouts of a run, outside any caller's context.
const (
	// StartTimeout bounds the opening of a run in its guest, until the program
	// has begun.
	StartTimeout = 30 * time.Second
	// KillTimeout is how long the guest has to end a run's process tree.
	// EndTimeout is how long the end event may take after that. A guest that
	// misses both is broken, and its sandbox is destroyed.
	KillTimeout = 10 * time.Second
	EndTimeout  = 5 * time.Second
	// InterruptGrace is how long an interrupted run in a context has to end by
	// itself before its interpreter is killed.
	InterruptGrace = guestapi.DefaultGrace
	// Backstop is added to a run's timeout for the guest's own timer. That
	// timer matters only when no server process is left to keep the timeout.
	Backstop = 5 * time.Second
	// cleanupTimeout bounds the work after the end of a program.
	cleanupTimeout = 10 * time.Second
)

// Records are the records of runs that a Set needs.
type Records interface {
	runlog.Records
	Run(ctx context.Context, id string) (store.Run, error)
	InsertRun(ctx context.Context, rec store.Run) error
	// FinishRun records the end of a run. It reports false if the end is on
	// record already.
	FinishRun(ctx context.Context, rec store.Run) (bool, error)
	// SetService records the state of a service.
	SetService(ctx context.Context, rec store.Run) error
}

// Options configure a Set. All fields are required, except Metrics.
type Options struct {
	Records Records
	Log     *slog.Logger
	Metrics *metrics.Set
	Now     func() time.Time // the time of records
	Shard   sandbox.Shard    // of new runs

	// Work and Spawn run a function in the background, and report whether they
	// do. Work also does so while the engine closes.
	Work, Spawn func(func()) bool
	// Missing returns the error for a language that an image lacks.
	Missing func(image string, from func(image string) error) error

	// Logs has a directory for each sandbox. LogSize bounds the log of a run.
	// RunningLogs and KeptLogs share the space for logs, and LongEvents the
	// memory for long events.
	Logs                              *os.Root
	LogSize                           int64
	RunningLogs, KeptLogs, LongEvents *fair.Pool

	// MaxTimeout is the longest timeout of a run. Detached means that runs
	// outlive this process.
	MaxTimeout time.Duration
	Detached   bool
}

// A Set has the runs of this process: those in progress, and the last few that
// ended.
type Set struct {
	opts  Options
	ctx   context.Context //nolint:containedctx // the life of the set, not of a caller
	shelf *runlog.Shelf   // of Options.KeptLogs

	mu    sync.Mutex
	runs  map[string]*Run // by run ID
	ended []string        // IDs of the runs that ended, oldest first
}

// NewSet returns an empty set, whose runs are let go when ctx ends.
func NewSet(ctx context.Context, opts Options) *Set {
	s := &Set{opts: opts, ctx: ctx, runs: map[string]*Run{}}
	s.shelf = runlog.NewShelf(ctx, runlog.ShelfOptions{
		Root: opts.Logs, Pool: opts.KeptLogs, Records: opts.Records, Log: opts.Log, Work: opts.Work, Gone: s.forget,
	})
	return s
}

// Find returns the run with that identifier, or nil.
func (s *Set) Find(id string) *Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs[id]
}

// Touch records a use of the log of a run, so that it is evicted later.
func (s *Set) Touch(id string) { s.shelf.Touch(id) }

// SweepLogs compares the logs of finished runs with the store's records, which
// every process of the state directory changes.
func (s *Set) SweepLogs(ctx context.Context) error { return s.shelf.Sweep(ctx) }

// add makes a run visible to other calls.
func (s *Set) add(r *Run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs[r.rec.ID] = r
}

// keepEnded is how many finished runs stay in memory: most questions about a
// run come right after its end.
const keepEnded = 64

// retire keeps a finished run in memory until keepEnded later ones have ended.
func (s *Set) retire(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = append(s.ended, id)
	if len(s.ended) > keepEnded {
		delete(s.runs, s.ended[0])
		s.ended = s.ended[1:]
	}
}

// forget forgets a finished run whose log was removed.
func (s *Set) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.runs, id)
}

// maxLongEvents is how many events of more than a MiB may be in memory at once.
// Each takes a few times its size, of at most 40 MiB, until its result is kept.
const maxLongEvents = 4

// LongEvents returns the pool of places for long events of runs.
func LongEvents() *fair.Pool {
	return fair.New(fair.Options{Name: "long events of runs", Total: maxLongEvents})
}
