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
// takeover.go.
//
// All methods are safe for concurrent use. Every object belongs to one
// principal. For any other principal it does not exist: the error is of kind
// [sandbox.NotFound], as if it had never existed. Errors name the wrong
// argument and carry a hint where a person can act.
//
// # Locks
//
// A goroutine that holds a lock takes only locks that come later in this order:
//
//	Engine.sweeping, liveSandbox.power, liveSandbox.mu, Engine.mu, fair.Pool
//
// The locks of package mount come between liveSandbox.power and Engine.mu: a
// sandbox that wakes tells its mount, and a mount begins work in the engine. No
// goroutine takes them while it holds a liveSandbox.mu. A pool asks a sandbox to
// go without the lock that comes last here.
//
// The locks of packages run, runlog and traffic are leaves: a goroutine that holds
// one of them takes no lock of this package. The store has locks of its own, below
// all of these.
//
// A method that needs a lock of its receiver held ends in Locked.
package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/account"
	"github.com/glovebox-dev/glovebox/internal/engine/hibernation"
	"github.com/glovebox-dev/glovebox/internal/engine/images"
	"github.com/glovebox-dev/glovebox/internal/engine/mount"
	"github.com/glovebox-dev/glovebox/internal/engine/places"
	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/engine/retention"
	"github.com/glovebox-dev/glovebox/internal/engine/run"
	"github.com/glovebox-dev/glovebox/internal/engine/runlog"
	"github.com/glovebox-dev/glovebox/internal/engine/strays"
	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/language"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

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
	if opts.Containers && !info.Features.Containers {
		return nil, sandbox.Wrap(driver.RefuseContainers(), "new engine", "")
	}
	if err := opts.Defaults.Check(opts.Maxima); err != nil {
		return nil, sandbox.Wrap(err, "new engine: default limits", "")
	}
	if err := opts.Network.Within(opts.MaxNetwork); err != nil {
		return nil, sandbox.Wrap(err, "new engine: default network", "")
	}
	if err := request.CheckSecrets(opts.Secrets, opts.MaxNetwork, info); err != nil {
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
	running, kept := runlog.Pools(opts.LogsSize, opts.LogSize)
	e := &Engine{
		runningLogs: running, keptLogs: kept, longEvents: run.LongEvents(),
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
		sandboxes: map[string]*liveSandbox{},
		adopting:  map[string]*adoption{},
	}
	e.runs = run.NewSet(ctx, run.Options{
		Records: opts.Store, Log: opts.Log, Metrics: opts.Metrics, Now: e.now, Shard: opts.Shard, Work: e.work, Spawn: e.spawn, Missing: e.missing,
		Logs: logs, LogSize: opts.LogSize, RunningLogs: running, KeptLogs: kept, LongEvents: e.longEvents,
		MaxTimeout: opts.MaxRunTimeout, Detached: opts.Detached,
	})
	e.retention = retention.Retention{Store: opts.Store, Logs: logs, SweepLogs: e.runs.SweepLogs, After: opts.Retention, Connections: maxRecorded, Now: e.now}
	e.images = e.newImages()
	e.places = places.New(places.Options{Max: opts.MaxSandboxes, QueueTime: opts.QueueTime, EvictAfter: opts.EvictAfter, Metrics: opts.Metrics, Now: e.now})
	opts.Hibernation.Disk = opts.Hibernation.Disk && info.Features.Save
	e.accounts = account.New(account.Options{Records: opts.Store, Log: opts.Log, Now: e.now})
	e.hibernation = hibernation.New(hibernation.Options{Settings: opts.Hibernation, Records: opts.Store, Check: e.accounts.CheckSave, Log: opts.Log, Metrics: opts.Metrics, Now: e.now})
	e.strays = strays.Strays{Driver: opts.Driver, Records: opts.Store, Log: opts.Log, CreateTime: createTimeout}
	e.mounts = mount.NewSet(ctx, mount.Options{
		Keeper: opts.Workspaces, Records: opts.Store, Log: opts.Log, Now: e.now, Shard: opts.Shard, Work: e.work, Closed: e.isClosed,
		Quota: opts.WorkspaceQuota, PrincipalQuota: opts.PrincipalQuota, Max: opts.MaxWorkspaces, TTL: opts.WorkspaceTTL,
		CheckGrow: e.accounts.CheckGrow,
		Driver:    info.Name, Copied: info.Features.WorkspaceCopied, EndTimeout: opts.endCopyTimeout, Root: logs, States: opts.Detached,
		EndWait: run.KillTimeout + run.InterruptGrace + run.EndTimeout,
	})
	e.Handles, e.Keeper = e.mounts.Handles(), e.newSnapshots()
	return e, nil
}

// newImages returns the images of the driver.
func (e *Engine) newImages() *images.Images {
	return images.New(images.Options{
		Driver: e.drv, Records: e.store, Runners: e.opts.Runners, Language: language.Default,
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
	e.places.Close()
	e.mu.Unlock()
	live := e.all()
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
	return []func() fair.Stats{e.places.Stats, e.hibernation.Stats, e.images.Pulls().Stats, e.runningLogs.Stats, e.keptLogs.Stats, e.longEvents.Stats}
}

// Stats returns the current counts.
func (e *Engine) Stats() Stats {
	st := Stats{Sandboxes: map[sandbox.State]int{}, Waiting: e.places.Stats().Waiting}
	for _, b := range e.all() {
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
