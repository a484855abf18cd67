package app

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"path/filepath"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/audited"
	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/control"
	"github.com/glovebox-dev/glovebox/internal/dashboard"
	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine"
	"github.com/glovebox-dev/glovebox/internal/engine/hibernation"
	"github.com/glovebox-dev/glovebox/internal/engine/snapshot"
	"github.com/glovebox-dev/glovebox/internal/guestbin"
	"github.com/glovebox-dev/glovebox/internal/hostfiles"
	"github.com/glovebox-dev/glovebox/internal/httpserver"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/ledger"
	"github.com/glovebox-dev/glovebox/internal/metrics"
	"github.com/glovebox-dev/glovebox/internal/operator"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/statedir"
	"github.com/glovebox-dev/glovebox/internal/store"
	"github.com/glovebox-dev/glovebox/internal/trace"
	"github.com/glovebox-dev/glovebox/internal/usage"
	"github.com/glovebox-dev/glovebox/internal/workspace"
)

// Open makes a System. Errors wrap the [sandbox.Kind] of the part that failed.
func Open(ctx context.Context, opts Options) (_ *System, err error) {
	s := &System{opts: opts, log: opts.Log, shares: httpserver.NewShares(0), mcpShares: ledger.NewShares(opts.Config.Server.Sessions)}
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
	if err := statedir.Make(c.StateDir, store.FileName); err != nil {
		return nil, err
	}
	// Before anything else in the directory, because it may be in removal.
	s.store, err = store.Open(ctx, store.Options{Dir: c.StateDir, Removal: opts.removal, Metered: func(a usage.Amounts) { s.metrics.Metered(a) }})
	if err != nil {
		return nil, err
	}
	if s.audit, s.closeAudit, err = openAudit(c, s.log); err != nil {
		return nil, err
	}
	guest, err := guestbin.Path(c.StateDir)
	if err != nil {
		return nil, err
	}
	key, err := stateKey(ctx, c, s.store)
	if err != nil {
		return nil, err
	}
	s.choice, err = opts.makeDriver(ctx, DriverOptions{
		StateDir: c.StateDir, Guest: guest, Images: c.Images, Docker: c.Docker, Kubernetes: c.Kubernetes, E2B: c.E2B,
		StateKey: key, Encrypt: c.Saved.Encrypt, Log: s.log,
	})
	s.driver = s.choice.Driver
	if err != nil {
		return nil, err
	}
	if err := checkEncrypts(c.Saved, s.DriverName()); err != nil {
		return nil, err
	}
	if opts.Metrics {
		s.metrics = metrics.New(opts.Version, s.DriverName())
		if opts.Getenv != nil {
			to, err := trace.TargetFromEnv(opts.Getenv, "metrics", opts.Version)
			if err != nil {
				return nil, sandbox.Errorf(sandbox.Invalid, "%w", err)
			}
			if to != nil {
				s.exporter = s.metrics.Export(to, opts.Version, s.log)
			}
		}
	}
	s.workspaces, err = openWorkspaces(c, s.driver)
	if err != nil {
		return nil, err
	}
	if opts.Pool && c.Pool.Size > 0 && !s.driver.Info().Features.Metered {
		if err := s.openPool(ctx); err != nil {
			return nil, err
		}
	}
	known := auth.Options{Tokens: s.store, Shard: c.Server.ShardID(), Static: c.Server.Token, Issuer: issuerOf(c.Server), Verified: s.audit.TokenVerified, Now: opts.now}
	if c.Server.SignIn.Enabled {
		known.Grants = s.store
	}
	known.Claimed = s.claimGroups
	s.auth, err = auth.New(known)
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
	s.secrets = secrets
	inner, err := engine.New(engine.Options{
		Driver:          s.driver,
		Store:           s.store,
		StateDir:        c.StateDir,
		Shard:           c.Server.ShardID(),
		Log:             s.log,
		Defaults:        c.Sandbox.Default.Limits(),
		Maxima:          c.Sandbox.Maximum.Limits(),
		AllowUnenforced: c.Sandbox.AllowUnenforced,
		Boundary:        s.choice.Control(c.RequireIsolation),
		Network:         c.Network.Asked(),
		MaxNetwork:      c.Network.Most(),
		NetworkTerms:    c.Network.Terms(),
		Secrets:         secrets,
		MaxSandboxes:    c.Sandbox.Count,
		QueueTime:       time.Duration(c.Sandbox.Queue),
		EvictAfter:      time.Duration(c.Sandbox.EvictAfter),
		Hibernation: hibernation.Settings{
			Disk:  c.Sandbox.Hibernate == config.HibernateDisk,
			After: time.Duration(c.Sandbox.HibernateAfter), Keep: time.Duration(c.Sandbox.HibernateKeep), Space: int64(c.Sandbox.HibernateSpace),
			CompressAfter: time.Duration(c.Saved.CompressAfter),
			Kept:          s.keptBytes,
		},
		Containers:     c.Sandbox.Containers,
		Snapshots:      snapshot.Limits{Count: c.Snapshots.Count, Bytes: int64(c.Snapshots.Size), TTL: time.Duration(c.Snapshots.Keep)},
		Workspaces:     s.workspaces,
		WorkspaceQuota: c.Workspace.Quota(),
		PrincipalQuota: c.Workspace.Total(),
		WorkspaceTTL:   time.Duration(c.Workspace.TTL),
		MaxWorkspaces:  maxWorkspaces(c),
		RunTimeout:     time.Duration(c.Run.Timeout),
		MaxRunTimeout:  c.Run.Longest(),
		LogSize:        int64(c.Run.LogSize),
		LogsSize:       int64(c.Run.LogSpace),
		Retention:      time.Duration(c.Run.Keep),
		Detached:       opts.Detached,
		CommandLine:    opts.CommandLine,
		Trace:          sink,
		Metrics:        s.metrics,
		Runners:        runners,
		Indexes:        c.Languages.Indexes(),
		UsageLabel:     c.Usage.Label,
		Connected:      auditedConnections(s.audit, secrets),
	})
	if err != nil {
		return nil, err
	}
	s.Engine = audited.New(inner, s.audit)
	s.Operator = operator.New(operator.Options{
		Store: s.store, Engine: s.Engine, Driver: s.driver, Quota: c.Workspace.Quota(), Spawn: s.background.Go,
	})
	if s.metrics != nil {
		s.metrics.Watch(s.state)
		s.metrics.Shares(append(s.shares.Stats(), s.mcpShares.Stats()...)...)
		s.metrics.Shares(s.Engine.Shares()...)
	}
	if !opts.Detached {
		if s.host, err = hostfiles.OpenDirectories(c.MCP.AllowDirs); err != nil {
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
		s.background.Go(func() { s.warmer.run(work, inner, s.log) })
	}
	return s, nil
}

// Close ends the servers, the sandboxes that are not detached, the driver and
// the store. It returns when all of them have ended.
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
	if s.closeAudit != nil {
		errs = append(errs, s.closeAudit())
	}
	if s.exporter != nil {
		s.exporter.Close()
	}
	if s.traces != nil {
		s.traces.Close()
	}
	return errors.Join(errs...)
}

// openWorkspaces opens Glovebox's own workspaces, or the directory of a server
// that Glovebox replaces.
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

// maxWorkspaces returns the limit on workspaces per principal; 0 is the default.
// If one principal has all conversations, only the disk limits their number.
func maxWorkspaces(c config.Config) int {
	if c.Workspace.Secret == "" {
		return 0
	}
	return math.MaxInt32
}

// listen lets commands in other processes use the sandboxes of this process. A
// failure is only logged: it affects only those commands.
func (s *System) listen() {
	c, err := control.Serve(s.store.OwnerSocket(s.Engine.OwnerID()), s.Engine)
	if err != nil {
		s.log.Warn("commands cannot reach the sandboxes of this process", "error", err)
		return
	}
	s.control = c
}

// issuerOf returns the configured issuer, or nil.
func issuerOf(s config.Server) *auth.Issuer {
	c := s.OIDC
	if c.Issuer == "" {
		return nil
	}
	var client *auth.Client
	if c.Client.ID != "" && s.Dashboard {
		client = &auth.Client{ID: c.Client.ID, Secret: c.Client.Secret, Scopes: c.Client.Scopes, Parameters: c.Client.Parameters,
			Redirect: strings.TrimRight(s.PublicURL, "/") + dashboard.IssuerBackPath}
		if len(client.Scopes) == 0 {
			client.Scopes = []string{c.Scopes.Run, c.Scopes.Files}
		}
	}
	return &auth.Issuer{
		Client:   client,
		URL:      c.Issuer,
		Audience: c.Audience,
		Scopes: map[auth.Scope]string{auth.ScopeRun: c.Scopes.Run, auth.ScopeFiles: c.Scopes.Files, auth.ScopeAdmin: c.Scopes.Admin,
			auth.ScopeRead: c.Scopes.Read, auth.ScopeOperate: c.Scopes.Operate},
		GroupClaim: c.Groups.Claim,
		Groups:     c.Groups.Map,
	}
}
