// Package engine owns every rule of Glovebox: what a request may say, whose a
// sandbox is, how much it gets, when a run and a sandbox end, how a run's end
// is judged, what is kept of its output, and that nothing is left behind.
//
// Drivers make boxes, the guest in a box runs programs, the store remembers;
// edges (MCP, HTTP, the command line) reach all of it through the [Engine],
// by interfaces that they declare themselves. The composition root makes it.
//
// # Lifecycle
//
// [New] registers this process as an owner of sandboxes in the state
// directory, which several processes may share. [Engine.Run] does what must be
// done from time to time until its context ends. [Engine.Close] ends the
// engine: it stops the sandboxes of an attached engine, and leaves those of a
// detached one to the next process that opens the state directory. The driver
// and the store are the caller's, to be closed after the engine.
//
// A sandbox is looked after by the process that made it. Another process of
// the same state directory can see it, stop it, and read the output of its
// runs; it takes it over when the owner is dead. See sweep.go.
//
// All methods are safe for concurrent use. Everything belongs to a principal;
// to any other it does not exist, and the error is that of something that
// never did, of kind [sandbox.NotFound]. Errors name the argument that is
// wrong and carry a hint where a person can act.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/interpreter"
	"github.com/glovebox-dev/glovebox/internal/metrics"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
	"github.com/glovebox-dev/glovebox/internal/trace"
	"github.com/glovebox-dev/glovebox/internal/workspace"
)

// Options configure an Engine. Zero fields take their defaults.
type Options struct {
	Driver driver.Driver // needed
	Store  *store.Store  // needed
	// StateDir is where the store is too; output logs are kept below it.
	StateDir string       // needed
	Log      *slog.Logger // default: none

	// Defaults are the limits of sandboxes whose creator asked for none, and
	// Maxima the most that anybody gets, where a zero field is no maximum.
	Defaults, Maxima sandbox.Limits // Defaults default: sandbox.DefaultLimits
	// AllowUnenforced names controls that the operator accepts unenforced.
	AllowUnenforced []sandbox.ControlName
	// Boundary is the first control of every receipt: what stands between code
	// and this machine, and why. Without a name it is the driver's own word.
	Boundary sandbox.Control
	// Network is that of sandboxes whose creator asked for none, MaxNetwork
	// the most that anybody gets, and NetworkTerms on what terms.
	Network, MaxNetwork sandbox.Network // default: sandbox.NetworkNone
	NetworkTerms        sandbox.NetworkTerms
	// Secrets are put into what sandboxes send, within MaxNetwork.
	Secrets []sandbox.Secret
	// MaxSandboxes bounds the live sandboxes of this process, MaxRuns the
	// runs going on in one sandbox.
	MaxSandboxes int // default: 64
	MaxRuns      int // default: 256
	// QueueTime is how long a caller waits for a place when there are
	// MaxSandboxes, and EvictAfter how long a sandbox must not have been used to
	// be stopped for somebody who waits; zero is not at all, and never.
	QueueTime, EvictAfter time.Duration

	// RunTimeout is the timeout of a run that asked for none, MaxRunTimeout
	// the longest that one may ask for.
	RunTimeout    time.Duration // default: 30 s
	MaxRunTimeout time.Duration // default: 10 min

	// Workspaces keeps workspaces; nil if there are to be none. One may hold
	// WorkspaceQuota, those of a principal together PrincipalQuota, where zero
	// is no limit, and it is removed when it was not used for WorkspaceTTL,
	// where zero is never.
	Workspaces                     workspace.Keeper
	WorkspaceQuota, PrincipalQuota sandbox.WorkspaceUsage
	WorkspaceTTL                   time.Duration
	// MaxWorkspaces is how many one principal may have; zero is 1000.
	MaxWorkspaces int

	// Detached sandboxes outlive this process. The driver must be able to.
	Detached bool
	// CommandLine says that [sandbox.Local] is a person at a command line, who
	// may name registries anywhere, and not a model that speaks MCP.
	CommandLine bool

	// RestAfter is how long a sandbox is left alone before it is paused.
	RestAfter time.Duration // default: 50 ms
	// SweepEvery is how often Run sweeps.
	SweepEvery time.Duration // default: 1 min
	// Retention is how long records and logs are kept after the end.
	Retention time.Duration // default: 24 h
	// LogSize bounds what is kept of one run's output (8 MiB at least),
	// LogsSize what is kept of all runs, half of it of those that go on.
	LogSize  int64 // default: 64 MiB
	LogsSize int64 // default: 4 GiB

	// Runners are the languages that there are.
	Runners interpreter.Table // default: interpreter.Runners
	// Indexes are where installers look for packages, by the name of the
	// installer, in place of the usual places.
	Indexes map[string]string

	// Trace takes spans of what sandboxes and runs take time for, of calls whose
	// context has no sink of its own.
	Trace trace.Sink // default: none
	// Metrics counts what happens.
	Metrics *metrics.Set // default: none

	// Now is the clock of records; timers are the runtime's.
	Now func() time.Time // default: time.Now

	// dialGuest makes the client of a box's guest; tests script it.
	dialGuest func(driver.Box) guest
	// endCopyTimeout is [endCopyTimeout]; tests have less time.
	endCopyTimeout time.Duration
}

// Bounds on the work that the engine does on its own, beyond any caller's
// context: they only keep a stuck driver from holding something for ever.
const (
	createTimeout    = 2 * time.Minute
	pullTimeout      = 30 * time.Minute
	destroyTimeout   = time.Minute
	warmPauseTimeout = 10 * time.Second
	coldPauseTimeout = 2 * time.Minute
	cleanupTimeout   = 10 * time.Second

	// killTimeout is how long the guest has to end a run's process tree, and
	// endTimeout how long its end may then take to arrive. A guest that keeps
	// neither is taken for broken, and its sandbox is destroyed.
	killTimeout = 10 * time.Second
	endTimeout  = 5 * time.Second

	// backstop is what the guest's own timer gets beyond a run's timeout: it
	// is for the case that no server is there to keep the time.
	backstop = 5 * time.Second

	// minLogSize is what a log needs to keep a head, a tail and what is being
	// written of two streams.
	minLogSize = 8 * segmentSize

	// pollEvery is how often a run of another process is looked at.
	pollEvery = 100 * time.Millisecond
)

func (o Options) withDefaults() Options {
	set := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	set(&o.RunTimeout, 30*time.Second)
	set(&o.MaxRunTimeout, 10*time.Minute)
	set(&o.RestAfter, 50*time.Millisecond)
	set(&o.SweepEvery, time.Minute)
	set(&o.Retention, 24*time.Hour)
	o.RunTimeout = min(o.RunTimeout, o.MaxRunTimeout)
	if o.MaxSandboxes == 0 {
		o.MaxSandboxes = 64
	}
	if o.MaxRuns == 0 {
		o.MaxRuns = 256
	}
	if o.LogSize == 0 {
		o.LogSize = 64 << 20
	}
	o.LogSize = max(o.LogSize, minLogSize)
	if o.LogsSize == 0 {
		o.LogsSize = 4 << 30
	}
	if o.Runners == nil {
		o.Runners = interpreter.Runners()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.endCopyTimeout == 0 {
		o.endCopyTimeout = endCopyTimeout
	}
	if o.dialGuest == nil {
		o.dialGuest = dialGuest
	}
	if o.Network == "" {
		o.Network = sandbox.NetworkNone
	}
	o.Defaults = o.Defaults.Or(sandbox.DefaultLimits())
	return o
}

// An Engine makes and looks after sandboxes.
type Engine struct {
	opts Options
	drv  driver.Driver
	// runningLogs and keptLogs share the space for logs.
	runningLogs, keptLogs *fair.Pool
	name                  string          // the driver's
	features              driver.Features // likewise
	store                 *store.Store
	owner                 *store.Owner
	log                   *slog.Logger
	logs                  *os.Root // below it, a directory per sandbox

	// ctx ends when Close begins to let go; background holds what it waits for.
	ctx        context.Context
	cancel     context.CancelFunc
	background sync.WaitGroup

	// places are for boxes; admission ends when nobody gets one any more.
	places    *fair.Pool
	pulls     *fair.Pool      // of images
	admission context.Context //nolint:containedctx // the end of waiting, not a caller's
	dismiss   context.CancelFunc

	sweeping sync.Mutex
	strays   map[string]time.Time // guarded by sweeping: see sweepStrays

	mu       sync.Mutex
	closed   bool            // nothing new begins
	over     bool            // nothing is left to be waited for but what is in background
	boxes    map[string]*box // by sandbox: those of this process, until they are gone
	runs     map[string]*run // by run: those going on here, and the last few that ended
	finished []string        // the runs of those that ended, oldest first
	adopting map[string]*adoption
	mounts   map[workspace.ID]*mount
	// importing has the imports that go on, which are closed at their end.
	kept      map[string]*keptLog // by run: logs of runs that ended
	importing map[sandbox.Principal]chan struct{}
	fileBase  string // URL of the server that serves files of workspaces
}

// keepFinished is how many runs that ended stay in memory: what is usually
// asked about a run is asked right after its end.
const keepFinished = 64

// New returns an engine. It fails with [sandbox.Unsupported] if opts asks for
// detached sandboxes of a driver that has none.
func New(opts Options) (*Engine, error) {
	if opts.Driver == nil || opts.Store == nil || opts.StateDir == "" {
		return nil, sandbox.Errorf(sandbox.Invalid, "new engine: driver, store and state directory are needed")
	}
	opts = opts.withDefaults()
	info := opts.Driver.Info()
	if opts.Detached && !info.Features.Detach {
		return nil, sandbox.WithHint(
			sandbox.Errorf(sandbox.Unsupported, "new engine: driver %s cannot make sandboxes that outlive this process", info.Name),
			"use another driver, or run without detached sandboxes")
	}
	if err := opts.Defaults.Check(opts.Maxima); err != nil {
		return nil, sandbox.Wrap(err, "new engine: default limits", "")
	}
	if err := opts.Network.Within(opts.MaxNetwork); err != nil {
		return nil, sandbox.Wrap(err, "new engine: default network", "")
	}
	if err := opts.checkSecrets(info); err != nil {
		return nil, sandbox.Wrap(err, "new engine", "")
	}
	dir := filepath.Join(opts.StateDir, "logs")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, sandbox.Errorf(sandbox.Unavailable, "new engine: %w", err)
	}
	logs, err := os.OpenRoot(dir)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Unavailable, "new engine: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	owner, err := opts.Store.RegisterOwner(ctx, opts.Detached)
	if err != nil {
		cancel()
		return nil, errors.Join(sandbox.Wrap(err, "new engine", ""), logs.Close())
	}
	admission, dismiss := context.WithCancel(context.Background())
	running, kept := opts.logPools()
	return &Engine{
		runningLogs: running, keptLogs: kept,
		opts:      opts,
		drv:       opts.Driver,
		name:      info.Name,
		features:  info.Features,
		store:     opts.Store,
		owner:     owner,
		log:       opts.Log,
		logs:      logs,
		ctx:       ctx,
		cancel:    cancel,
		places:    newPlaces(opts),
		pulls:     fair.New(fair.Options{Name: "pulls of images", Total: maxPulls, RetryAfter: 10 * time.Second}),
		admission: admission,
		dismiss:   dismiss,
		strays:    map[string]time.Time{},
		boxes:     map[string]*box{},
		runs:      map[string]*run{},
		adopting:  map[string]*adoption{},
		mounts:    map[workspace.ID]*mount{},

		kept:      map[string]*keptLog{},
		importing: map[sandbox.Principal]chan struct{}{},
	}, nil
}

// Run sweeps at once and then from time to time, until ctx ends. It returns
// ctx's error.
func (e *Engine) Run(ctx context.Context) error {
	t := time.NewTicker(e.opts.SweepEvery)
	defer t.Stop()
	for {
		if err := e.Sweep(ctx); err != nil && ctx.Err() == nil {
			e.log.Error("sweep", "error", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
	}
}

// Close ends the engine. It stops all sandboxes of an attached engine, and
// returns when they are gone; those of a detached one go on, and so do their
// runs, for the next process to take over. Calls that come later fail.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	e.dismiss()
	boxes := make([]*box, 0, len(e.boxes))
	for _, b := range e.boxes {
		boxes = append(boxes, b)
	}
	e.mu.Unlock()

	errs := make([]error, len(boxes))
	var wg sync.WaitGroup
	for i, b := range boxes {
		wg.Go(func() {
			if e.opts.Detached && b.started() {
				errs[i] = b.letGo(ctx)
				return
			}
			errs[i] = b.stop(ctx, reason{cause: "the server that ran it was shut down", code: sandbox.SandboxLost})
		})
	}
	wg.Wait()
	e.cancel()
	e.mu.Lock()
	e.over = true
	e.mu.Unlock()
	e.background.Wait()
	errs = append(errs, e.owner.Release(context.WithoutCancel(ctx)), e.logs.Close())
	return sandbox.Wrap(errors.Join(errs...), "close engine", "")
}

// Stats are what this process has at a moment.
type Stats struct {
	Sandboxes map[sandbox.State]int // those that are being stopped count as stopped
	Runs      int                   // going on
	Waiting   int                   // for a place for a sandbox
}

// Shares are what principals share: the figures of each pool.
func (e *Engine) Shares() []func() fair.Stats {
	return []func() fair.Stats{e.places.Stats, e.pulls.Stats, e.runningLogs.Stats, e.keptLogs.Stats}
}

// Stats counts what there is now.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	st := Stats{Sandboxes: map[sandbox.State]int{}, Waiting: e.places.Stats().Waiting}
	boxes := slices.Collect(maps.Values(e.boxes))
	e.mu.Unlock()
	for _, b := range boxes {
		b.mu.Lock()
		state := b.rec.State
		if b.why != nil {
			state = sandbox.Stopped
		}
		st.Sandboxes[state]++
		st.Runs += len(b.runs)
		b.mu.Unlock()
	}
	return st
}

// spawn runs f in the background, unless the engine is being closed; it
// reports whether it does. It is for what begins by itself.
func (e *Engine) spawn(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.background.Go(f)
	return true
}

// work does the same, but also while the engine is being closed: it is for
// what belongs to something that Close waits for.
func (e *Engine) work(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over {
		return false
	}
	e.background.Go(f)
	return true
}

// now returns the time as records have it.
func (e *Engine) now() time.Time {
	return time.UnixMicro(e.opts.Now().UnixMicro()).UTC()
}

// errClosed is the error of calls to an engine that is closed.
func errClosed() error {
	return sandbox.Errorf(sandbox.Unavailable, "the server is shutting down")
}

// noSandbox is the error for a sandbox that does not exist for the caller,
// whatever the reason.
func noSandbox(id string) error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "sandbox_id: there is no sandbox %s", shorten(id)),
		"list the sandboxes to see those that there are, or make one")
}

// noRun is the same for a run.
func noRun(id string) error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "run_id: there is no run %s", shorten(id)),
		"runs are kept for a while after their end; start it again")
}

// shorten bounds a text of a caller that goes into a message, and takes what
// could act on a terminal out of it.
func shorten(s string) string {
	const most = 60
	if len(s) > most {
		return fmt.Sprintf("%.*q…", most, s)
	}
	if sandbox.ValidID(s) || sandbox.ValidRunID(s) {
		return s
	}
	return fmt.Sprintf("%q", s)
}
