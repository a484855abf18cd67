// Package httpserver is the front door for HTTP: one mux with the edges that
// speak it, behind a guard that checks host, origin, token, rate and size, and
// a health check outside of it.
//
// Only package app imports it. [New] makes a [Server] from handlers that others
// made; [Server.Serve] serves a listener until its context ends, then lets what
// is under way finish within a grace period. A Server serves once.
//
// A request goes through, in this order: the log, the Host check, the Origin
// check, the bearer token, the rate limit, its principal's share of what goes on
// at one time, the bound on its body. The handlers behind find the caller's
// [auth.Identity] in the context.
package httpserver

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/metrics"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Verifier tells who a bearer token belongs to. Verify returns an error
// wrapping [sandbox.Unauthenticated] for a token that is not good.
type Verifier interface {
	Verify(ctx context.Context, token string) (auth.Identity, error)
}

// Options are what New needs. MCP, E2B, Ports or ServeMetrics, Auth and Log must
// be set.
type Options struct {
	// Listen is the address that is listened on, as host:port. Its host is
	// accepted in the Host header.
	Listen string
	// MCP serves /mcp, what is below it, and /sse.
	MCP http.Handler
	// E2B serves what is below /e2b, or everything if there is no MCP.
	E2B  E2B
	Auth Verifier
	// Files serves /files/ and /workspaces; nil if there are none.
	Files Files
	// Ports are shown below /ports/, and at names of the form
	// PORT-SANDBOX.PreviewDomain unless that is empty; nil if none are.
	Ports         Ports
	PreviewDomain string
	Log           *slog.Logger

	// Metrics counts requests, and is served at /metrics to who may manage the
	// server if ServeMetrics is set. It may be nil.
	Metrics      *metrics.Set
	ServeMetrics bool

	// Anonymous, if not nil, is who asks when there is no token. It is for
	// tests on a loopback address, which New checks.
	Anonymous *auth.Identity

	// AllowHosts and AllowOrigins are accepted in the Host and Origin
	// headers, besides loopback names and the address listened on. "*"
	// accepts any.
	AllowHosts   []string
	AllowOrigins []string

	// PublicURL is how clients reach this server, if not as their Host header
	// says. Issuers are authorization servers whose tokens Auth takes.
	PublicURL string
	Issuers   []string
	// Scopes are what a client is told to ask an issuer for; none are run and
	// files.
	Scopes []string

	// CodeRunnerPaths are paths at which a request without a good token is
	// refused in the words of mcp-code-runner, which its clients read.
	CodeRunnerPaths []string

	// CertFile and KeyFile, if set, are PEM files to serve TLS with.
	CertFile, KeyFile string

	// MaxBodyBytes bounds a request's body; zero is [DefaultMaxBodyBytes].
	MaxBodyBytes int64
	// Shares are what principals share, with other front doors too. Nil is
	// shares of this server alone.
	Shares *Shares
	// RequestsPerSecond bounds the requests of one principal, with bursts of
	// twice that; zero is [DefaultRequestsPerSecond].
	RequestsPerSecond float64

	// Drain is called when Serve's context ends. It is to end what is under
	// way, in order until ctx ends and at any rate then, and whatever else
	// keeps a connection busy.
	Drain func(ctx context.Context) error
	// Grace is how long that may take; zero is [DefaultGrace].
	Grace time.Duration
}

// Defaults of [Options].
const (
	DefaultMaxBodyBytes = 8 << 20
	// DefaultMaxBodies bounds the bodies of all requests under way together.
	DefaultMaxBodies         = 256 << 20
	DefaultRequestsPerSecond = 500
	DefaultGrace             = 10 * time.Second
)

// Bounds of a connection. A body has to arrive, and a piece of an answer to
// leave, within ioTimeout; how long an answer takes is not bounded here.
const (
	headerTimeout  = 10 * time.Second
	ioTimeout      = 30 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 32 << 10
)

// metricsPath is where Prometheus reads.
const metricsPath = "/metrics"

// e2bPath is where E2B's protocol is served beside MCP.
const e2bPath = "/e2b"

// A Server is the HTTP front door.
type Server struct {
	opts    Options
	handler http.Handler
	tls     *tls.Config
	shares  *Shares
	live    live
	closing context.Context
	close   context.CancelFunc // of closing
}

// New returns a Server. It returns an error wrapping [sandbox.Invalid] if the
// options do not fit together.
func New(o Options) (*Server, error) {
	if o.MaxBodyBytes == 0 {
		o.MaxBodyBytes = DefaultMaxBodyBytes
	}
	if o.Shares == nil {
		o.Shares = NewShares(0)
	}
	if o.RequestsPerSecond == 0 {
		o.RequestsPerSecond = DefaultRequestsPerSecond
	}
	if len(o.Scopes) == 0 {
		o.Scopes = []string{string(auth.ScopeRun), string(auth.ScopeFiles)}
	}
	o.PreviewDomain = strings.ToLower(o.PreviewDomain)
	if o.Grace == 0 {
		o.Grace = DefaultGrace
	}
	s := &Server{opts: o, shares: o.Shares}
	s.closing, s.close = context.WithCancel(context.Background())
	if o.Anonymous != nil {
		if host, _, err := net.SplitHostPort(o.Listen); err != nil || !sandbox.IsLoopback(host) {
			return nil, sandbox.Errorf(sandbox.Invalid, "listen: %q is not a loopback address, which serving without a token needs", o.Listen)
		}
	}
	if o.CertFile != "" || o.KeyFile != "" {
		cert, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "load TLS certificate: %w", err),
				"give both a certificate and its key, as PEM files")
		}
		s.tls = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	}
	g, err := newGuard(o)
	if err != nil {
		return nil, err
	}

	limits := newLimits(o.RequestsPerSecond)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", healthz)
	metadata := g.checkHost(g.checkOrigin(http.HandlerFunc(s.metadata)))
	mux.Handle(metadataPath, metadata)
	mux.Handle(metadataPath+"/", metadata)
	door := func(h http.Handler, lasts func(*http.Request) bool) http.Handler {
		return g.checkHost(g.checkOrigin(s.authenticate(limits.limit(s.admit(h, lasts, writeErrorTo), writeErrorTo))))
	}
	if o.MCP != nil {
		mcp := door(s.bound(o.MCP, writeErrorTo), isMCPStream)
		for _, path := range []string{"/mcp", "/mcp/", "/sse"} {
			mux.Handle(path, mcp)
		}
	}
	rest := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := sandbox.Errorf(sandbox.NotFound, "there is nothing at this path")
		if o.MCP != nil {
			err = sandbox.WithHint(err, "MCP is at /mcp")
		}
		writeError(w, err)
	}))
	if o.E2B != nil {
		e2b := g.checkHost(g.checkOrigin(o.E2B.Authenticate(noteCaller(limits.limit(s.admit(s.boundE2B(o.E2B), o.E2B.Lasts, o.E2B.Refuse), o.E2B.Refuse)))))
		if o.MCP == nil {
			rest = e2b
		} else {
			mux.Handle(e2bPath+"/", http.StripPrefix(e2bPath, e2b))
			// SDKs put the path of a file's signed address at the root.
			mux.Handle("/files", e2b)
		}
	}
	if o.Files != nil {
		mux.Handle(filesPath, g.checkHost(g.checkOrigin(http.HandlerFunc(s.serveFile))))
		s.serveWorkspaces(mux, door)
	}
	if o.ServeMetrics {
		mux.Handle("GET "+metricsPath, door(managersOnly(o.Metrics.Handler()), never))
	}
	mux.Handle("/", rest)
	s.handler = s.logRequests(s.showPorts(g, mux))
	return s, nil
}

// Handler returns what Serve serves, for tests.
func (s *Server) Handler() http.Handler { return s.handler }

// Serve serves the listener until ctx ends, then shuts down: no new connection
// is taken, Drain is called, and what is left after the grace period is cut
// off. It returns nil after a shutdown, and the reason if it could not serve.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	srv := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.opts.Log.Handler(), slog.LevelDebug),
	}
	(&connections{shares: s.shares}).watch(srv)
	if s.tls != nil {
		ln = tls.NewListener(ln, s.tls)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	select {
	case err := <-served:
		return sandbox.Wrap(err, "serve HTTP", ln.Addr().String())
	case <-ctx.Done():
	}
	s.opts.Log.Info("shutting down", "grace", s.opts.Grace)
	s.close()
	graceCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.Grace)
	defer cancel()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		if s.opts.Drain == nil {
			return
		}
		if err := s.opts.Drain(graceCtx); err != nil {
			s.opts.Log.Warn("what was under way did not finish in time and was cancelled", "error", err)
		}
	}()
	// Drain may need the whole grace period, and answers have to leave after.
	closeCtx, cancelClose := context.WithTimeout(context.WithoutCancel(ctx), s.opts.Grace+headerTimeout)
	defer cancelClose()
	if err := srv.Shutdown(closeCtx); err != nil {
		s.opts.Log.Warn("connections were cut off", "error", err)
		srv.Close()
	}
	<-drained
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return sandbox.Wrap(err, "serve HTTP", ln.Addr().String())
	}
	return nil
}

// healthz says that the server serves. It says nothing else to anybody.
func healthz(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}
