// Package app puts the parts together: from a configuration it makes a
// [System] whose engine, driver, store and servers know each other only
// through what they declare.
//
// Only package cli imports it, and nothing else knows every part. [Open] makes
// a System; the caller uses its Engine or has it serve; Close ends it, and
// with it every sandbox that is not detached.
package app

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"path/filepath"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/control"
	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine"
	"github.com/glovebox-dev/glovebox/internal/guestbin"
	"github.com/glovebox-dev/glovebox/internal/hostdir"
	"github.com/glovebox-dev/glovebox/internal/httpserver"
	"github.com/glovebox-dev/glovebox/internal/mcpserver"
	"github.com/glovebox-dev/glovebox/internal/metrics"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
	"github.com/glovebox-dev/glovebox/internal/trace"
	"github.com/glovebox-dev/glovebox/internal/workspace"
)

// Options are what a System is made from.
type Options struct {
	// Config is valid.
	Config config.Config
	// Log receives what is worth knowing; nil discards it.
	Log *slog.Logger
	// Version is what the program calls itself to clients.
	Version string
	// Detached sandboxes outlive this process, and are found again by the
	// next one.
	Detached bool
	// Metrics counts what happens, for who reads /metrics.
	Metrics bool
	// Pool keeps sandboxes ready, if the configuration says how many.
	Pool bool
	// Secrets gives sandboxes the configuration's secrets: for a caller that
	// makes some.
	Secrets bool
	// CommandLine says that the local user is a person at a command line, who may
	// name registries anywhere.
	CommandLine bool
	// Passive does no work in the background: for a caller that only looks.
	Passive bool
	// Looks says that the caller makes no sandboxes, so that it does not matter
	// what they must be behind.
	Looks bool
	// Conformance serves HTTP without tokens, on a loopback address only, and
	// with the fixtures of MCP's conformance suite.
	Conformance bool
	// Getenv gives the variables that say where traces go; nil is nowhere.
	Getenv func(string) string
	// TestDrivers are drivers by name beside those of the build. Only tests
	// have any.
	TestDrivers map[string]Maker
	// TestAuto are the drivers that "auto" tries, in place of the build's. Only
	// tests have any.
	TestAuto []string
}

// A System is everything, put together.
type System struct {
	// Engine is what edges ask for work.
	Engine *engine.Engine

	opts   Options
	log    *slog.Logger
	driver driver.Driver
	// fallback is why "auto" took a driver without a kernel of its own; "" if it
	// did not.
	fallback string
	warmer   *warmer // nil without a pool
	store    *store.Store
	auth     *auth.Auth
	host     *hostdir.Set // of a client on this machine, else nil

	workspaces workspace.Keeper
	served     *files      // nil unless over HTTP
	ports      *ports      // likewise
	local      *localPorts // nil unless over stdio
	control    *control.Server
	shares     *httpserver.Shares
	mcpShares  *mcpserver.Shares
	metrics    *metrics.Set // nil if nothing is counted

	traces     *trace.Exporter // nil if they go nowhere
	stop       context.CancelFunc
	background sync.WaitGroup
}

// Open makes a System. The error wraps the [sandbox.Kind] of what failed.
func Open(ctx context.Context, opts Options) (_ *System, err error) {
	s := &System{opts: opts, log: opts.Log, shares: httpserver.NewShares(0), mcpShares: mcpserver.NewShares(opts.Config.Server.Sessions)}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close(context.WithoutCancel(ctx)))
		}
	}()
	c := opts.Config
	var sink trace.Sink
	if opts.Getenv != nil {
		if s.traces, err = trace.FromEnv(opts.Getenv, opts.Version, s.log); err != nil {
			return nil, sandbox.Errorf(sandbox.Invalid, "%w", err)
		}
		if s.traces != nil {
			sink = s.traces.Take
		}
	}
	if err := makeStateDir(c.StateDir); err != nil {
		return nil, err
	}
	guest, err := guestbin.Path(c.StateDir)
	if err != nil {
		return nil, err
	}
	s.driver, s.fallback, err = opts.makeDriver(ctx, DriverOptions{StateDir: c.StateDir, Guest: guest, Images: c.Images, Docker: c.Docker, E2B: c.E2B, Log: s.log})
	if err != nil {
		return nil, err
	}
	if opts.Metrics {
		s.metrics = metrics.New(opts.Version, s.DriverName())
	}
	s.store, err = store.Open(ctx, store.Options{Dir: c.StateDir})
	if err != nil {
		return nil, err
	}
	s.workspaces, err = openWorkspaces(c, s.driver)
	if err != nil {
		return nil, err
	}
	if opts.Pool && c.Pool.Size > 0 && !s.driver.Info().Features.Metered {
		if s.warmer, err = s.newWarmer(ctx, s.driver); err != nil {
			return nil, err
		}
		s.driver = s.warmer
	}
	s.auth, err = auth.New(auth.Options{Tokens: s.store, Static: c.Server.Token, Issuer: issuerOf(c.Server.OIDC)})
	if err != nil {
		return nil, err
	}
	runners, err := Runners(c.Languages)
	if err != nil {
		return nil, err
	}
	var secrets []sandbox.Secret
	if opts.Secrets {
		if secrets, err = c.OpenSecrets(); err != nil {
			return nil, err
		}
	}
	s.Engine, err = engine.New(engine.Options{
		Driver:          s.driver,
		Store:           s.store,
		StateDir:        c.StateDir,
		Log:             s.log,
		Defaults:        c.Sandbox.Default.Limits(),
		Maxima:          c.Sandbox.Maximum.Limits(),
		AllowUnenforced: c.Sandbox.AllowUnenforced,
		Boundary:        s.boundary(),
		Network:         c.Network.Asked(),
		MaxNetwork:      c.Network.Most(),
		NetworkTerms:    c.Network.Terms(),
		Secrets:         secrets,
		MaxSandboxes:    c.Sandbox.Count,
		QueueTime:       time.Duration(c.Sandbox.Queue),
		EvictAfter:      time.Duration(c.Sandbox.EvictAfter),
		Workspaces:      s.workspaces,
		WorkspaceQuota:  c.Workspace.Quota(),
		PrincipalQuota:  c.Workspace.Total(),
		WorkspaceTTL:    time.Duration(c.Workspace.TTL),
		MaxWorkspaces:   maxWorkspaces(c),
		RunTimeout:      time.Duration(c.Run.Timeout),
		MaxRunTimeout:   time.Duration(c.Run.MaxTimeout),
		LogSize:         int64(c.Run.LogSize),
		Detached:        opts.Detached,
		CommandLine:     opts.CommandLine,
		Trace:           sink,
		Metrics:         s.metrics,
		Runners:         runners,
		Indexes:         c.Languages.Indexes(),
	})
	if err != nil {
		return nil, err
	}
	if s.metrics != nil {
		s.metrics.Watch(s.state)
		s.metrics.Shares(append(s.shares.Stats(), s.mcpShares.Stats()...)...)
		s.metrics.Shares(s.Engine.Shares()...)
	}
	if !opts.Detached {
		if s.host, err = hostdir.Open(c.MCP.AllowDirs); err != nil {
			return nil, err
		}
		s.host.AllowToolFiles = c.MCP.AllowToolFiles
	}
	if opts.Passive {
		return s, nil
	}
	s.listen()
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.background.Go(func() {
		if err := s.Engine.Run(work); err != nil && work.Err() == nil {
			s.log.Error("background work ended", "error", err)
		}
	})
	if s.warmer != nil {
		s.background.Go(func() { s.warmer.run(work, s) })
	}
	return s, nil
}

// DriverName returns the name of the driver in use.
func (s *System) DriverName() string { return s.driver.Info().Name }

// Config returns the configuration in use.
func (s *System) Config() config.Config { return s.opts.Config }

// Close ends everything: the sandboxes that are not detached, the driver, the
// store. It returns when nothing of them is left.
func (s *System) Close(ctx context.Context) error {
	var errs []error
	if s.control != nil {
		errs = append(errs, s.control.Close())
	}
	if s.stop != nil {
		s.stop()
		s.background.Wait()
	}
	if s.Engine != nil {
		errs = append(errs, s.Engine.Close(ctx))
	}
	if s.workspaces != nil {
		errs = append(errs, s.workspaces.Close())
	}
	if s.driver != nil {
		errs = append(errs, s.driver.Close())
	}
	if s.warmer != nil {
		errs = append(errs, s.warmer.close(ctx))
	}
	if s.store != nil {
		errs = append(errs, s.store.Close())
	}
	if s.host != nil {
		errs = append(errs, s.host.Close())
	}
	if s.traces != nil {
		s.traces.Close()
	}
	return errors.Join(errs...)
}

// openWorkspaces opens the workspaces: ours, or the directory of a server that
// Glovebox replaces.
func openWorkspaces(c config.Config, d driver.Driver) (workspace.Keeper, error) {
	dir := cmp.Or(c.Workspace.Dir, filepath.Join(c.StateDir, "workspaces"))
	var theirs *workspace.Conversations
	if c.Workspace.Secret != "" {
		theirs = &workspace.Conversations{Secret: c.Workspace.Secret, Principal: auth.StaticPrincipal}
	}
	if k, ok := d.(driver.WorkspaceKeeper); ok {
		if there, keeps := k.KeepsWorkspaces(); keeps {
			return workspace.OpenRemote(workspace.RemoteOptions{Secrets: dir, Dir: there, Dial: k.DialWorkspaces, Conversations: theirs})
		}
	}
	var set *workspace.Set
	var err error
	if theirs == nil {
		set, err = workspace.Open(dir)
	} else {
		set, err = workspace.OpenConversations(dir, *theirs)
	}
	if err != nil {
		return nil, err
	}
	return workspace.Local{Set: set}, nil
}

// maxWorkspaces bounds the workspaces of a principal: where all conversations
// are one's, only the disk does.
func maxWorkspaces(c config.Config) int {
	if c.Workspace.Secret == "" {
		return 0
	}
	return math.MaxInt32
}
