// Package engine implements the rules of Glovebox. It checks requests and
// decides which principal owns a sandbox. It sets limits, ends runs and
// sandboxes, judges the end of a run, keeps its output, and removes what is
// left.
//
// Drivers make boxes, the guest in a box runs programs, and the store keeps
// records. The edges (MCP, HTTP, the command line) reach all of it through the
// [Engine], by interfaces that they declare themselves. The composition root
// makes the Engine.
//
// # Lifecycle
//
// [New] registers this process in the state directory, which several processes
// may share. [Engine.Run] does the periodic work until its context ends.
// [Engine.Close] ends the engine. It stops the sandboxes of an attached engine,
// and leaves the sandboxes of a detached engine to the next process that opens
// the state directory. The caller owns the driver and the store, and closes
// them after the engine.
//
// The process that made a sandbox supervises it. Another process of the same
// state directory can see the sandbox, stop it, and read the output of its
// runs. It takes the sandbox over when the supervising process is dead. See
// sweep.go.
//
// # Locks
//
// A goroutine that holds a lock takes only locks that come later in this order:
//
//	Engine.sweeping, liveSandbox.power, liveSandbox.mu, Engine.mu, fair.Pool
//
// The locks of package mount come between liveSandbox.power and Engine.mu: a
// sandbox that wakes tells its mount, and a mount begins work in the engine. No
// goroutine takes them while it holds a liveSandbox.mu. The others are leaves:
// run.mu, baselineFile.mu, liveSandbox.recording and the locks of package runlog.
// A goroutine that holds one of them takes no lock of this package. The store has
// locks of its own, below all of these.
//
// A method that needs a lock of its receiver held ends in Locked.
//
// All methods are safe for concurrent use. Every object belongs to one
// principal. For any other principal it does not exist: the error is of kind
// [sandbox.NotFound], as if it had never existed. Errors name the wrong
// argument and carry a hint where a person can act.
package engine

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/images"
	"github.com/glovebox-dev/glovebox/internal/engine/mount"
	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/engine/runlog"
	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
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
	Driver driver.Driver // required
	Store  *store.Store  // required
	// StateDir is the directory of the store; output logs are kept below it.
	StateDir string       // required
	Log      *slog.Logger // default: none

	// Defaults are the limits of a sandbox whose creator asked for none. Maxima
	// are the largest limits that a creator may ask for; a zero field means no
	// maximum.
	Defaults, Maxima sandbox.Limits // Defaults default: sandbox.DefaultLimits
	// AllowUnenforced names controls that the operator accepts unenforced.
	AllowUnenforced []sandbox.ControlName
	// Boundary is the first control of every receipt: the barrier between the
	// code and this machine, with the reason. Without a name, the driver's own
	// description is used.
	Boundary sandbox.Control
	// Network is the policy of a sandbox whose creator asked for none.
	// MaxNetwork is the most permissive policy that a creator may ask for.
	// NetworkTerms apply to all networks.
	Network, MaxNetwork sandbox.Network // default: sandbox.NetworkNone
	NetworkTerms        sandbox.NetworkTerms
	// Secrets are inserted into requests that sandboxes send, within
	// MaxNetwork.
	Secrets []sandbox.Secret
	// MaxSandboxes bounds the live sandboxes of this process, and MaxRuns the
	// runs in progress in one sandbox.
	MaxSandboxes int // default: 64
	MaxRuns      int // default: 256
	// QueueTime is how long a caller waits for a place when MaxSandboxes exist;
	// zero means no wait. EvictAfter is how long a sandbox must be unused
	// before it may be stopped for a waiting caller; zero means that no sandbox
	// is.
	QueueTime, EvictAfter time.Duration

	// RunTimeout is the timeout of a run that asked for none. MaxRunTimeout is
	// the longest timeout that a run may ask for.
	RunTimeout    time.Duration // default: 30 s
	MaxRunTimeout time.Duration // default: 10 min

	// Workspaces keeps workspaces; nil disables them. WorkspaceQuota bounds one
	// workspace, and PrincipalQuota all workspaces of a principal together; a
	// zero field means no limit. A workspace is removed when it was unused for
	// WorkspaceTTL; zero means never.
	Workspaces                     workspace.Keeper
	WorkspaceQuota, PrincipalQuota sandbox.WorkspaceUsage
	WorkspaceTTL                   time.Duration
	// MaxWorkspaces is the largest number of workspaces per principal; zero
	// means 1000.
	MaxWorkspaces int

	// Detached sandboxes outlive this process. The driver must support that.
	Detached bool
	// CommandLine means that [sandbox.Local] is a person at a command line, not
	// a model that speaks MCP. A person may name any registry.
	CommandLine bool

	// RestAfter is how long a sandbox is unused before it is paused.
	RestAfter time.Duration // default: 50 ms
	// SweepEvery is the interval between the sweeps of Run.
	SweepEvery time.Duration // default: 1 min
	// Retention is how long records and logs are kept after their run or
	// sandbox has ended.
	Retention time.Duration // default: 24 h
	// LogSize bounds the output kept of one run (8 MiB at least). LogsSize
	// bounds the output kept of all runs; half of it is for runs in progress.
	LogSize  int64 // default: 64 MiB
	LogsSize int64 // default: 4 GiB

	// Runners are the supported languages.
	Runners interpreter.Table // default: interpreter.Runners
	// Indexes are the package indexes that installers use instead of their
	// usual ones, by the name of the installer.
	Indexes map[string]string

	// Trace receives the spans of sandboxes and runs, for calls whose context
	// has no sink of its own.
	Trace trace.Sink // default: none
	// Metrics counts events.
	Metrics *metrics.Set // default: none

	// Now is the clock for records. Timers use the clock of the Go runtime.
	Now func() time.Time // default: time.Now

	// dialGuest makes the client of a box's guest. Tests replace it.
	dialGuest func(driver.Box) guest
	// endCopyTimeout defaults to [mount.EndTimeout]. Tests set a
	// shorter one.
	endCopyTimeout time.Duration
}

// Timeouts for work that the engine does on its own, outside any caller's
// context. They keep a stuck driver from blocking the engine forever.
const (
	createTimeout    = 2 * time.Minute
	destroyTimeout   = time.Minute
	warmPauseTimeout = 10 * time.Second
	coldPauseTimeout = 2 * time.Minute
	cleanupTimeout   = 10 * time.Second
	// closeTimeout is for what still goes on at the end of Close. It is more
	// than a sandbox takes to stop, with the last copy of its workspace.
	closeTimeout = mount.EndTimeout + 3*destroyTimeout

	// killTimeout is how long the guest has to end a run's process tree.
	// endTimeout is how long the end event may take after that. A guest that
	// misses both is broken, and its sandbox is destroyed.
	killTimeout = 10 * time.Second
	endTimeout  = 5 * time.Second

	// backstop is added to a run's timeout for the guest's own timer. That
	// timer matters only when no server process is left to keep the timeout.
	backstop = 5 * time.Second

	// pollEvery is the polling interval for a run of another process.
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
	o.LogSize = max(o.LogSize, runlog.MinSize)
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
	if o.dialGuest == nil {
		o.dialGuest = dialGuest
	}
	if o.Network == "" {
		o.Network = sandbox.NetworkNone
	}
	o.Defaults = o.Defaults.Or(sandbox.DefaultLimits())
	return o
}

// rules returns the rules for requests to an engine with a driver.
func (o Options) rules(info driver.Info) request.Rules {
	return request.Rules{
		Driver: info.Name, Features: info.Features, Workspaces: o.Workspaces != nil,
		Defaults: o.Defaults, Maxima: o.Maxima, Network: o.Network, MaxNetwork: o.MaxNetwork,
		RunTimeout: o.RunTimeout, MaxRunTimeout: o.MaxRunTimeout,
	}
}

// An Engine makes and supervises sandboxes.
type Engine struct {
	opts  Options
	rules request.Rules
	drv   driver.Driver
	// runningLogs and keptLogs share the space for logs.
	runningLogs, keptLogs *fair.Pool
	shelf                 *runlog.Shelf // of keptLogs
	mounts                *mount.Set
	images                *images.Images
	name                  string          // of drv
	features              driver.Features // of drv
	store                 *store.Store
	owner                 *store.Owner
	log                   *slog.Logger
	logs                  *os.Root // below it, a directory per sandbox

	// ctx ends late in Close, when the sandboxes have stopped or been let go.
	// Close then waits for background.
	ctx        context.Context
	cancel     context.CancelFunc
	background sync.WaitGroup

	// places are for boxes. admission ends when Close begins: from then on no
	// box gets a place.
	places    *fair.Pool
	longLines *fair.Pool      // long events in memory
	admission context.Context //nolint:containedctx // the end of waiting, not a caller's
	dismiss   context.CancelFunc

	sweeping sync.Mutex
	strays   map[string]time.Time // guarded by sweeping: see sweepStrays

	mu        sync.Mutex
	closed    bool                    // nothing new begins
	over      bool                    // Close waits only for background; no new work begins
	sandboxes map[string]*liveSandbox // by sandbox ID: the live sandboxes of this process, until they are gone
	runs      map[string]*run         // by run ID: runs in progress here, and the last few that ended
	finished  []string                // IDs of the runs that ended, oldest first
	adopting  map[string]*adoption
	fileBase  string // URL of the server that serves files of workspaces
}

// keepFinished is how many finished runs stay in memory: most questions about a
// run come right after its end.
const keepFinished = 64

// New returns an engine, which the caller must close. The error is of kind
// [sandbox.Invalid] if a required option is missing. It is of kind
// [sandbox.Unsupported] if opts asks for detached sandboxes and the driver has
// none.
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
	running, kept := runlog.Pools(opts.LogsSize, opts.LogSize)
	e := &Engine{
		runningLogs: running, keptLogs: kept,
		opts:      opts,
		rules:     opts.rules(info),
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
		longLines: newLongLines(),
		admission: admission,
		dismiss:   dismiss,
		strays:    map[string]time.Time{},
		sandboxes: map[string]*liveSandbox{},
		runs:      map[string]*run{},
		adopting:  map[string]*adoption{},
	}
	e.shelf = runlog.NewShelf(ctx, runlog.ShelfOptions{
		Root: logs, Pool: kept, Records: opts.Store, Log: opts.Log, Work: e.work, Gone: e.forgetRun,
	})
	e.images = e.newImages()
	e.mounts = mount.NewSet(ctx, mount.Options{
		Keeper: opts.Workspaces, Records: opts.Store, Log: opts.Log, Now: e.now, Work: e.work, Closed: e.isClosed,
		Quota: opts.WorkspaceQuota, PrincipalQuota: opts.PrincipalQuota, Max: opts.MaxWorkspaces, TTL: opts.WorkspaceTTL,
		Driver: info.Name, Copied: info.Features.WorkspaceCopied, EndTimeout: opts.endCopyTimeout, Root: logs, States: opts.Detached,
		EndWait: killTimeout + interruptGrace + endTimeout,
	})
	return e, nil
}

// newImages returns the images of the driver.
func (e *Engine) newImages() *images.Images {
	return images.New(images.Options{
		Driver: e.drv, Records: e.store, Runners: e.opts.Runners, Language: defaultLanguage,
		Log: e.log, Now: e.now, CommandLine: e.opts.CommandLine,
	})
}

// Run sweeps at once and then every Options.SweepEvery, until ctx ends. It
// returns ctx's error.
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
// returns when they are gone. Sandboxes and runs of a detached engine continue;
// the next process takes them over. Later calls fail with an error of kind
// [sandbox.Unavailable].
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	e.dismiss()
	live := make([]*liveSandbox, 0, len(e.sandboxes))
	for _, b := range e.sandboxes {
		live = append(live, b)
	}
	e.mu.Unlock()

	errs := make([]error, len(live))
	var wg sync.WaitGroup
	for i, b := range live {
		wg.Go(func() {
			if e.opts.Detached && b.started() {
				errs[i] = b.letGo(ctx)
				return
			}
			errs[i] = b.Stop(ctx, verdict.Reason{Cause: "the server that ran it was shut down", Code: sandbox.SandboxLost})
		})
	}
	wg.Wait()
	e.cancel()
	e.mu.Lock()
	e.over = true
	e.mu.Unlock()
	errs = append(errs, e.awaitBackground())
	// In any case: the next process waits for the owner's lock.
	errs = append(errs, e.owner.Release(context.WithoutCancel(ctx)), e.logs.Close())
	return sandbox.Wrap(errors.Join(errs...), "close engine", "")
}

// awaitBackground waits for the work in the background, for closeTimeout at most.
func (e *Engine) awaitBackground() error {
	idle := make(chan struct{})
	go func() {
		e.background.Wait()
		close(idle)
	}()
	t := time.NewTimer(closeTimeout)
	defer t.Stop()
	select {
	case <-idle:
		return nil
	case <-t.C:
		return sandbox.Errorf(sandbox.Internal, "work in the background does not end within %v", closeTimeout)
	}
}

// Stats are the counts of this process at one moment.
type Stats struct {
	Sandboxes map[sandbox.State]int // a sandbox that is being stopped counts as stopped
	Runs      int                   // in progress
	Waiting   int                   // calls that wait for a place for a sandbox
}

// Shares returns, for each pool that principals share, the function that
// returns its statistics.
func (e *Engine) Shares() []func() fair.Stats {
	return []func() fair.Stats{e.places.Stats, e.images.Pulls().Stats, e.runningLogs.Stats, e.keptLogs.Stats, e.longLines.Stats}
}

// Stats returns the current counts.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	st := Stats{Sandboxes: map[sandbox.State]int{}, Waiting: e.places.Stats().Waiting}
	live := slices.Collect(maps.Values(e.sandboxes))
	e.mu.Unlock()
	for _, b := range live {
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

// isClosed reports whether Close has begun.
func (e *Engine) isClosed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

// spawn runs f in the background and reports whether it does: not once Close
// has begun. Use it for work that no caller waits for.
func (e *Engine) spawn(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.background.Go(f)
	return true
}

// work is like spawn, but also runs f while Close is in progress. Use it for
// work that belongs to something that Close waits for.
func (e *Engine) work(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over {
		return false
	}
	e.background.Go(f)
	return true
}

// now returns the current time with the precision of records.
func (e *Engine) now() time.Time {
	return time.UnixMicro(e.opts.Now().UnixMicro()).UTC()
}
