package app

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/audited"
	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/dashboard"
	"github.com/glovebox-dev/glovebox/internal/e2bapi"
	"github.com/glovebox-dev/glovebox/internal/httpserver"
	"github.com/glovebox-dev/glovebox/internal/mcpserver"
	"github.com/glovebox-dev/glovebox/internal/network"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/signin"
	"github.com/glovebox-dev/glovebox/internal/store"
	"github.com/glovebox-dev/glovebox/internal/template"
)

// mcp returns an MCP server with the tools of a profile.
func (s *System) mcp(profile string, host mcpserver.HostFiles) (*mcpserver.Server, error) {
	c := s.opts.Config
	p, err := s.profile(profile)
	if err != nil {
		return nil, err
	}
	opts := mcpserver.Options{
		Engine:          s.Engine,
		HostFiles:       host,
		Profile:         p,
		Log:             s.log,
		Version:         s.opts.Version,
		Tools:           c.MCP.Tools,
		ReadOnly:        c.MCP.ReadOnly,
		ToolPrefix:      c.MCP.ToolPrefix,
		ApproveNetwork:  slices.Contains(c.MCP.Approve, config.ApproveNetwork),
		ApproveLimits:   slices.Contains(c.MCP.Approve, config.ApproveLimits),
		Internet:        slices.ContainsFunc(c.Network.Most().Rules(), func(r sandbox.NetworkRule) bool { return r.Internet }),
		MaxMessageBytes: int64(c.Server.BodyLimit),
		Shares:          s.mcpShares,
		Called:          s.metrics.ToolCalled,
	}
	if s.served != nil {
		opts.Files, opts.Ports = s.served, s.ports
	} else if s.local != nil {
		opts.Ports = s.local
	}
	return mcpserver.New(opts)
}

// ServeStdio serves one MCP client on in and out, as the local user. It returns
// when in or ctx ends.
func (s *System) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	s.local = s.localPorts()
	server, err := s.mcp(s.opts.Config.MCP.Profile, s.hostTools())
	if err != nil {
		return err
	}
	// A read of standard input cannot be interrupted, but a read of a pipe can.
	reader, writer := io.Pipe()
	go func() {
		_, err := io.Copy(writer, in)
		writer.CloseWithError(err) // nil is end of file
	}()
	err = server.ServeStdio(ctx, reader, nopWriteCloser{out})
	return errors.Join(err, server.Shutdown(context.WithoutCancel(ctx)), s.local.close())
}

// ServeHTTP serves MCP clients, which authenticate by a token, and E2B's
// clients, until ctx ends. Requests in progress then have a while to finish. It
// calls ready when the configuration has been checked completely, and ends if ready
// fails. It closes the listeners.
func (s *System) ServeHTTP(ctx context.Context, lns Listeners, ready func() error) error {
	defer lns.Close()
	base := s.fileBase(lns.MCP.Addr())
	s.served, s.ports = s.files(base), s.portsAt(base, s.opts.Config.Server.PreviewDomain)
	s.Engine.ServeFilesAt(base)
	server, err := s.mcpGroup()
	if err != nil {
		return err
	}
	builder, err := s.templates()
	if err != nil {
		return err
	}
	e2b, err := s.e2b(builder)
	if err != nil {
		return err
	}
	s.metrics.Shares(e2b.Stats()...)
	opts, err := s.front()
	if err != nil {
		return err
	}
	opts.Listen = s.opts.Config.Server.Listen
	opts.MCP, opts.E2B = server.Handler(), e2b
	opts.Files, opts.Usage = s.served, s.store
	s.serveAdministration(&opts)
	opts.Ports, opts.PreviewDomain = s.ports, s.ports.Domain()
	var pages *dashboard.Server
	if s.opts.Config.Server.Dashboard {
		pages = s.dashboard(base)
		opts.Dashboard = pages
	}
	opts.CodeRunnerPaths = s.codeRunnerPaths()
	if in := s.opts.Config.Server.SignIn; in.Enabled {
		opts.SignIn = signin.New(signin.Options{
			Auth: s.auth, Store: s.store, Log: s.log, Shard: s.opts.Config.Server.ShardID(), Documents: in.Documents, Public: network.Public, Now: s.opts.now,
			Domains: domains(s.ports.Domain(), s.opts.Config.Server.E2BDomain), Ports: lns.ports(),
		})
	}
	opts.ServeMetrics = s.metrics != nil && lns.Metrics == nil
	opts.Drain = func(ctx context.Context) error {
		e2b.Shutdown()
		return server.Shutdown(ctx)
	}
	front, err := httpserver.New(opts)
	if err != nil {
		return err
	}
	doors := []door{{front, lns.MCP}}
	watch := &auth.Revocation{Auth: s.auth, Log: s.log, Requests: []auth.Opened{front}, Sessions: []auth.Opened{server}}
	if lns.E2B != nil {
		f, err := s.e2bFront(e2b)
		if err != nil {
			return err
		}
		doors = append(doors, door{f, lns.E2B})
		watch.Requests = append(watch.Requests, f)
	}
	if lns.Metrics != nil {
		f, err := s.metricsFront()
		if err != nil {
			return err
		}
		doors = append(doors, door{f, lns.Metrics})
	}
	watching, stop := context.WithCancel(ctx)
	var watched sync.WaitGroup
	watched.Go(func() { watch.Run(watching) })
	if builder != nil {
		s.metrics.Shares(builder.Turns().Stats)
		watched.Go(func() { builder.Run(watching) })
	}
	watched.Go(func() { e2b.Run(watching) })
	if pages != nil {
		watched.Go(func() { pages.Run(watching) })
	}
	defer watched.Wait()
	defer stop()
	s.offerRuns()
	if err := ready(); err != nil {
		return err
	}
	return serveAll(ctx, doors)
}

// domains returns the domains in lower case that are set.
func domains(names ...string) []string {
	var list []string
	for _, name := range names {
		if name != "" {
			list = append(list, strings.ToLower(name))
		}
	}
	return list
}

// A door is an HTTP server with its listener.
type door struct {
	front *httpserver.Server
	ln    net.Listener
}

// serveAll serves all doors until ctx ends or one fails. One failure ends all:
// the service is incomplete without it.
func serveAll(ctx context.Context, doors []door) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(doors))
	var wg sync.WaitGroup
	for i, d := range doors {
		wg.Go(func() {
			defer cancel()
			errs[i] = d.front.Serve(ctx, d.ln)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// e2bFront returns an HTTP server for E2B's protocol alone.
func (s *System) e2bFront(e2b *e2bapi.Server) (*httpserver.Server, error) {
	opts, err := s.front()
	if err != nil {
		return nil, err
	}
	opts.Listen = s.opts.Config.Server.E2BListen
	opts.E2B = e2b
	opts.Drain = func(context.Context) error { e2b.Shutdown(); return nil }
	// Below this domain are the host names of sandboxes.
	domain := cmp.Or(s.opts.Config.Server.E2BDomain, "localhost")
	opts.AllowHosts = append(slices.Clone(opts.AllowHosts), "*."+domain)
	return httpserver.New(opts)
}

// front returns the options that all HTTP servers share.
func (s *System) front() (httpserver.Options, error) {
	c := s.opts.Config.Server
	proxies, err := c.Proxies()
	if err != nil {
		return httpserver.Options{}, err
	}
	opts := httpserver.Options{
		Auth:              s.auth,
		Log:               s.log,
		Metrics:           s.metrics,
		AllowHosts:        c.AllowHosts,
		AllowOrigins:      c.AllowOrigins,
		TrustedProxies:    proxies,
		PublicURL:         c.PublicURL,
		CertFile:          c.TLSCert,
		KeyFile:           c.TLSKey,
		MaxBodyBytes:      int64(c.BodyLimit),
		Shares:            s.shares,
		RequestsPerSecond: c.RateLimit,
		Rates:             s.store.RequestRates,
	}
	if c.OIDC.Issuer != "" {
		opts.Issuers = []string{c.OIDC.Issuer}
		opts.Scopes = []string{c.OIDC.Scopes.Run, c.OIDC.Scopes.Files}
	}
	return opts, nil
}

// accessKey is the file, in the state directory, with the key for the access
// tokens of sandboxes.
const accessKey = "access.key"

// e2b returns a server for E2B's clients.
func (s *System) e2b(builder *template.Service) (*e2bapi.Server, error) {
	access, err := auth.NewAccess(filepath.Join(s.opts.Config.StateDir, accessKey))
	if err != nil {
		return nil, err
	}
	return e2bapi.New(e2bapi.Options{
		Engine: e2bEngine{s.Engine, s.store}, Auth: s.auth, Access: access, Log: s.log, Templates: s.templatesAPI(builder, access),
		Domain: s.opts.Config.Server.E2BDomain, PublicPorts: s.opts.Config.Server.E2BPublicPorts, Secrets: s.secrets,
		Mounts: s.driver.Info().Features.Mounts,
	}), nil
}

// e2bEngine is the engine for E2B's clients: it shows workspaces as volumes.
type e2bEngine struct {
	*audited.Engine
	records *store.Store
}

// Labels implements [e2bapi.Engine].
func (e e2bEngine) Labels(ctx context.Context, id string) (map[string]string, error) {
	rec, err := e.records.Sandbox(ctx, id)
	return rec.Labels, err
}

// Volume implements [e2bapi.Engine].
func (e e2bEngine) Volume(ctx context.Context, handle string) (e2bapi.Volume, error) {
	m, err := e.Engine.Volume(ctx, handle)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// E2BKey converts a token to an API key for E2B's SDKs.
func E2BKey(token string) string { return e2bapi.Key(token) }

// nopWriteCloser keeps standard output open: other code may use it.
type nopWriteCloser struct{ io.Writer }

func (nopWriteCloser) Close() error { return nil }

// metricsFront returns an HTTP server for the metrics alone.
func (s *System) metricsFront() (*httpserver.Server, error) {
	opts, err := s.front()
	if err != nil {
		return nil, err
	}
	opts.Listen = s.opts.Config.Server.MetricsListen
	opts.ServeMetrics = true
	return httpserver.New(opts)
}

// mcpGroup returns servers of all profiles, the configured profile first. If the
// operator configured a list of tools, it returns only the configured profile.
func (s *System) mcpGroup() (*mcpserver.Group, error) {
	first, err := s.mcp(s.opts.Config.MCP.Profile, nil)
	if err != nil {
		return nil, err
	}
	servers := []*mcpserver.Server{first}
	for _, name := range ProfileNames() {
		if name == s.opts.Config.MCP.Profile || len(s.opts.Config.MCP.Tools) > 0 {
			continue
		}
		server, err := s.mcp(name, nil)
		if err != nil {
			return nil, err
		}
		servers = append(servers, server)
	}
	return mcpserver.NewGroup(servers...), nil
}
