// Package httpserver is the front door for HTTP. It combines the edges that speak
// HTTP in one mux, behind a guard that checks host, origin, token, rate and size.
// The health check is outside of the guard.
//
// Only package app imports it. [New] makes a [Server] from existing handlers.
// [Server.Serve] serves a listener until its context ends, and then lets active
// requests finish within a grace period. A Server serves once.
//
// A request first passes the log, the Host check, the Origin check and the check
// of the bearer token. Then it passes the rate limit, its principal's share of
// concurrent requests, and the limit for its body. Handlers find the caller's
// [auth.Identity] in the context.
package httpserver

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/metrics"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Verifier verifies bearer tokens. For an invalid token, Verify returns an
// error wrapping [sandbox.Unauthenticated]. Gone reports whether an identity was
// revoked; see [auth.Auth.Gone].
type Verifier interface {
	Verify(ctx context.Context, token string) (auth.Identity, error)
	Gone(ctx context.Context, id auth.Identity) (bool, error)
}

// A SignIn is an authorization server for the clients of this server. Handlers
// returns a handler for each path; base returns the URL by which a request's client
// reaches the server.
type SignIn interface {
	Handlers(base func(*http.Request) string) map[string]http.Handler
}

// Options are the arguments of [New]. Auth, Log and at least one of MCP, E2B,
// Ports and ServeMetrics must be set.
type Options struct {
	// Listen is the address of the listener, as host:port. Its host is accepted
	// in the Host header.
	Listen string
	// MCP serves /mcp, all paths below it, and /sse.
	MCP http.Handler
	// E2B serves the paths below /e2b, or all paths if MCP is nil.
	E2B  E2B
	Auth Verifier
	// Files serves /files/ and /workspaces. Nil: these paths do not exist.
	Files Files
	// Usage serves /api/usage. Nil: this path does not exist.
	Usage Usage
	// Admin has the handlers of the administration of accounts by their patterns. They
	// find the caller's identity in the context, and check its scopes. Public has those
	// that need no token.
	Admin  map[string]http.Handler
	Public map[string]http.Handler
	// Ports serves ports of sandboxes below /ports/. If PreviewDomain is not
	// empty, it also serves them at hosts of the form PORT-SANDBOX.PreviewDomain.
	// Nil: ports are not served.
	Ports         Ports
	PreviewDomain string
	// Dashboard serves pages for people below /ui/, and visitors of / are sent there.
	// MCP must be set, too. Nil: there are none.
	Dashboard Dashboard
	Log       *slog.Logger

	// Metrics counts requests; may be nil. If ServeMetrics is set, Metrics must
	// be set, and is served at /metrics to identities with [auth.ScopeOperate].
	Metrics      *metrics.Set
	ServeMetrics bool

	// Anonymous, if not nil, is the identity of requests without a token. It is
	// for tests: New refuses it unless Listen is a loopback address.
	Anonymous *auth.Identity

	// AllowHosts and AllowOrigins are accepted in the Host and Origin headers, in
	// addition to loopback names and the host of Listen. "*" accepts all.
	AllowHosts   []string
	AllowOrigins []string

	// TrustedProxies are the addresses of the operator's own proxies. The address of
	// their clients comes from the header X-Forwarded-For.
	TrustedProxies []netip.Prefix

	// PublicURL is the URL at which clients reach this server. If it is empty,
	// the Host header decides. Issuers are the URLs of authorization servers
	// whose tokens Auth accepts.
	PublicURL string
	Issuers   []string
	// SignIn, if not nil, is the authorization server at this server's own URL.
	SignIn SignIn
	// Scopes are the scope names that clients must request from an issuer. Empty:
	// run and files.
	Scopes []string

	// CodeRunnerPaths are the paths at which authentication errors use the words
	// of mcp-code-runner, because its clients parse them.
	CodeRunnerPaths []string

	// CertFile and KeyFile, if set, are PEM files for TLS.
	CertFile, KeyFile string

	// MaxBodyBytes bounds a request's body. Zero is [DefaultMaxBodyBytes].
	MaxBodyBytes int64
	// Shares are the resource pools that all principals share, possibly with
	// other front doors of the process. Nil makes pools for this server alone.
	Shares *Shares
	// RequestsPerSecond is the rate limit of one principal; bursts may have twice
	// as many requests. Zero is [DefaultRequestsPerSecond].
	RequestsPerSecond float64
	// Rates returns further limits of a principal's requests; nil is none. They do not
	// bound requests to ports of sandboxes, which strangers may send.
	Rates Rates

	// Drain is called when Serve's context ends. It must end the active calls,
	// and everything else that keeps a connection busy. It may wait for calls
	// until ctx ends, and must cancel them then.
	Drain func(ctx context.Context) error
	// Grace is the time that Drain gets. Zero is [DefaultGrace].
	Grace time.Duration
}

// Defaults of [Options].
const (
	DefaultMaxBodyBytes = 8 << 20
	// DefaultMaxBodies bounds the total size of the bodies of all active
	// requests.
	DefaultMaxBodies         = 256 << 20
	DefaultRequestsPerSecond = 500
	DefaultGrace             = 10 * time.Second
)

// Limits of a connection. A body must arrive within ioTimeout, and each write of
// an answer must finish within it. The total duration of an answer is not bounded
// here.
const (
	headerTimeout  = 10 * time.Second
	ioTimeout      = 30 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 32 << 10
)

// Bounds of an HTTP/2 connection. SDKs of E2B use a stream for each running
// command. The buffer holds data of bodies that no handler has read yet; it also
// bounds an upload to its size for each round trip.
const (
	maxStreamsOfConnection = 100
	receiveBuffer          = 256 << 10
)

// metricsPath is the path that Prometheus scrapes.
const metricsPath = "/metrics"

// e2bPath is the path of E2B's protocol if the server also serves MCP.
const e2bPath = "/e2b"

// A Server is the HTTP front door.
type Server struct {
	opts    Options
	handler http.Handler
	e2b     http.Handler // serves E2B's protocol behind the guard; nil if there is none
	tls     *tls.Config
	shares  *Shares
	live    live
	// patterns are those of the mux.
	patterns []string
	closing  context.Context
	close    context.CancelFunc // cancels closing
}

// New returns a Server. If the options contradict each other, the error wraps
// [sandbox.Invalid].
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
			return nil, sandbox.Errorf(sandbox.Invalid, "listen: %q must be a loopback address, because no token is required", o.Listen)
		}
	}
	if o.CertFile != "" || o.KeyFile != "" {
		cert, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "load TLS certificate: %w", err),
				"pass both a certificate and its key, as PEM files")
		}
		s.tls = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	}
	g, err := newGuard(o)
	if err != nil {
		return nil, err
	}

	limits := newLimits(o.RequestsPerSecond, o.Rates)
	mux := &routes{mux: http.NewServeMux()}
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
		s.serveSignIn(mux, g)
		s.serveDashboard(mux, g, limits)
	}
	rest := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.isVisitor(r) {
			w.Header().Add("Vary", "Accept")
			http.Redirect(w, r, dashboardPath, http.StatusSeeOther)
			return
		}
		err := sandbox.Errorf(sandbox.NotFound, "there is nothing at this path")
		if o.MCP != nil {
			err = sandbox.WithHint(err, "MCP is at /mcp")
		}
		writeError(w, err)
	}))
	if o.E2B != nil {
		limited := limitE2B(limits, newLimits(o.RequestsPerSecond, nil), o.E2B, s.admit(s.boundE2B(o.E2B), o.E2B.Lasts, o.E2B.Refuse))
		s.e2b = o.E2B.Authenticate(noteCaller(limited))
		e2b := g.checkHost(g.checkOrigin(s.e2b))
		if o.MCP == nil {
			rest = e2b
		} else {
			mux.Handle(e2bPath+"/", http.StripPrefix(e2bPath, e2b))
			// SDKs resolve the path of a file's signed URL at the root.
			mux.Handle("/files", e2b)
		}
	}
	if o.Files != nil {
		mux.Handle(filesPath, g.checkHost(g.checkOrigin(http.HandlerFunc(s.serveFile))))
		s.serveWorkspaces(mux, door)
	}
	if o.Usage != nil {
		mux.Handle("GET "+usagePath, door(http.HandlerFunc(s.serveUsage), never))
	}
	for pattern, h := range o.Admin {
		mux.Handle(pattern, door(h, never))
	}
	for pattern, h := range o.Public {
		mux.Handle(pattern, g.checkHost(h))
	}
	if o.ServeMetrics {
		mux.Handle("GET "+metricsPath, door(operatorsOnly(o.Metrics.Handler()), never))
	}
	mux.Handle("/", rest)
	s.handler, s.patterns = s.logRequests(s.showPorts(g, mux.mux)), mux.patterns
	return s, nil
}

// routes is a mux that knows its patterns.
type routes struct {
	mux      *http.ServeMux
	patterns []string
}

// Handle adds a handler.
func (r *routes) Handle(pattern string, h http.Handler) {
	r.patterns = append(r.patterns, pattern)
	r.mux.Handle(pattern, h)
}

// HandleFunc adds a handler.
func (r *routes) HandleFunc(pattern string, h http.HandlerFunc) { r.Handle(pattern, h) }

// Patterns returns the patterns of all paths that the server serves.
func (s *Server) Patterns() []string { return s.patterns }

// Handler returns the handler of Serve, for tests.
func (s *Server) Handler() http.Handler { return s.handler }

// Serve serves the listener until ctx ends, and then shuts down. It accepts no
// new connections, calls Drain, and cuts off the remaining requests after the
// grace period. It returns nil after a shutdown, and an error if it could not
// serve.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	srv := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          maxStreamsOfConnection,
			MaxReceiveBufferPerConnection: receiveBuffer,
			MaxReceiveBufferPerStream:     receiveBuffer,
		},
		ErrorLog: slog.NewLogLogger(s.opts.Log.Handler(), slog.LevelDebug),
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
			s.opts.Log.Warn("requests in progress did not finish in time and were cancelled", "error", err)
		}
	}()
	// Drain may need the whole grace period, and answers must be sent after it.
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

// healthz reports only that the server is running, since it needs no token.
func healthz(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}
