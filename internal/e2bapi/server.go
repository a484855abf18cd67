// Package e2bapi serves E2B's protocol for unmodified E2B SDKs. It implements the
// control plane with the engine. It forwards requests of the data plane to the
// guest in the sandbox, which answers them itself.
//
// Only package app imports it. [New] makes a [Server], which serves until
// [Server.Shutdown]. [Server.Run] does its periodic work. [Server.Authenticate] identifies the caller and must wrap
// all other handlers.
//
// Missing functions are answered with 404 or 501 and a reason. A request for
// something impossible is refused as a whole; no part of a request is ignored.
// docs/e2b.md lists the functions that exist.
package e2bapi

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/e2bapi/templates"
	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// An Engine is the part of package engine that the server uses.
type Engine interface {
	Create(ctx context.Context, p sandbox.Principal, r sandbox.CreateRequest) (sandbox.Sandbox, error)
	Get(ctx context.Context, p sandbox.Principal, id string) (sandbox.Sandbox, error)
	List(ctx context.Context, p sandbox.Principal) ([]sandbox.Sandbox, error)
	Stop(ctx context.Context, p sandbox.Principal, id string) error
	Hibernate(ctx context.Context, p sandbox.Principal, id string) error
	Restart(ctx context.Context, p sandbox.Principal, id string) error
	Wake(ctx context.Context, p sandbox.Principal, id string) error
	TakeSnapshot(ctx context.Context, p sandbox.Principal, id, name string) (sandbox.Snapshot, error)
	TakeDiskSnapshot(ctx context.Context, p sandbox.Principal, id, name string) (sandbox.Snapshot, error)
	Snapshot(ctx context.Context, p sandbox.Principal, ref string) (sandbox.Snapshot, error)
	Snapshots(ctx context.Context, p sandbox.Principal, filter sandbox.SnapshotFilter) ([]sandbox.Snapshot, error)
	RemoveSnapshot(ctx context.Context, p sandbox.Principal, ref string) error
	Fork(ctx context.Context, p sandbox.Principal, id string, req sandbox.ForkRequest) ([]sandbox.Fork, error)
	DialPort(ctx context.Context, p sandbox.Principal, id string, port int) (net.Conn, error)
	SetNetworkRules(ctx context.Context, p sandbox.Principal, id string, n sandbox.Network, rules []sandbox.Secret) (sandbox.Sandbox, error)
	AllowedNetwork(n sandbox.Network) sandbox.Network
	SetEnd(ctx context.Context, p sandbox.Principal, id string, ttl time.Duration) (sandbox.Sandbox, error)
	Forward(p sandbox.Principal, id string, defaults sandbox.ProgramDefaults, req *http.Request) (*http.Response, error)
	Observe(id string, req *http.Request) (*http.Response, error)
	Observable() []string
	Runs(ctx context.Context, p sandbox.Principal, id string, limit int) ([]sandbox.Run, error)
	Output(ctx context.Context, p sandbox.Principal, runID string, budget int) (sandbox.Output, error)
	HasImage(ctx context.Context, p sandbox.Principal, ref string) (bool, error)
	Owner(ctx context.Context, id string) (sandbox.Principal, error)
	// Labels returns the labels of a sandbox of any principal, also of an ended one.
	Labels(ctx context.Context, id string) (map[string]string, error)
	Live(ctx context.Context) ([]string, error)
	StatFile(ctx context.Context, p sandbox.Principal, id, path string) (sandbox.File, error)
	Unpack(ctx context.Context, p sandbox.Principal, id string, r io.Reader, to sandbox.UnpackTo) error

	// E2B's volumes are workspaces, and their IDs are handles. Volume opens one of any
	// principal; the caller releases it.
	Volume(ctx context.Context, handle string) (Volume, error)
	Workspaces(ctx context.Context, p sandbox.Principal) ([]sandbox.Workspace, error)
	WorkspaceOf(ctx context.Context, p sandbox.Principal, name string) (id, handle string, err error)
	MakeWorkspace(ctx context.Context, p sandbox.Principal, name string) (url string, err error)
	DeleteWorkspace(ctx context.Context, p sandbox.Principal, name string) error
}

// A Verifier identifies the owner of an API key. For an invalid key, Verify
// returns an error wrapping [sandbox.Unauthenticated]. Gone reports whether an
// identity was revoked; see [auth.Auth.Revoked].
type Verifier interface {
	Verify(ctx context.Context, token string) (auth.Identity, error)
	Gone(ctx context.Context, id auth.Identity) (bool, error)
}

// An Access makes and checks the tokens of single sandboxes: the access token,
// for everything, and the traffic token, for ports.
type Access interface {
	Token(id string) string
	Check(id, token string) bool
	TrafficToken(id string) string
	CheckTraffic(id, token string) bool
}

// Options are the arguments of [New]. All but Domain, Templates, Secrets and Now must
// be set.
type Options struct {
	Engine Engine
	Auth   Verifier
	Access Access
	Log    *slog.Logger
	// Domain is the domain of the data plane, whose hosts are
	// PORT-SANDBOX.DOMAIN. Empty: the host of each request.
	Domain string
	// PublicPorts serves ports of sandboxes without a token, unless the creator of
	// a sandbox does not want that. It holds for sandboxes that this protocol makes
	// while it is set.
	PublicPorts bool
	// Mounts means that sandboxes can have several workspaces, each at its own path.
	Mounts bool
	// Templates builds templates; nil if the driver cannot build images.
	Templates *templates.API
	// Secrets are the operator's, which clients may list. Their values are not used.
	Secrets []sandbox.Secret
	// Now is the clock; nil is [time.Now].
	Now func() time.Time
}

// A Server serves E2B's protocol. It is safe for concurrent use.
type Server struct {
	opts    Options
	control http.Handler
	// signatures finds the sandbox for file URLs that do not name it.
	signatures *signatures
	began      time.Time
	history    *history
	journal    *journal
	// closing ends when forwarded requests must be cut off.
	closing context.Context
	close   context.CancelFunc
}

// New returns a Server.
func New(o Options) *Server {
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{opts: o, began: o.Now().UTC(), signatures: newSignatures(o.Engine.Live, o.Access.Token), history: newHistory(), journal: newJournal(o.Now)}
	s.closing, s.close = context.WithCancel(context.Background())
	s.control = s.routes()
	return s
}

// Stats returns one function for each resource that is divided between clients.
// The function returns the current figures.
func (s *Server) Stats() []func() fair.Stats { return []func() fair.Stats{s.signatures.searches.Stats} }

// Shutdown cuts off forwarded requests, and all that come later. Programs in
// sandboxes keep running.
func (s *Server) Shutdown() { s.close() }

// ServeHTTP serves a request that [Server.Authenticate] has accepted.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if t, ok := r.Context().Value(targetKey{}).(target); ok {
		s.data(w, r, t)
		return
	}
	s.control.ServeHTTP(w, r)
}

// routes returns the handler of the control plane.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	// SDKs from before mid-2026 use the paths without a version.
	for _, v := range []string{"", "/v2"} {
		mux.HandleFunc("POST "+v+"/sandboxes", s.answer(s.create))
		mux.HandleFunc("GET "+v+"/sandboxes", s.answer(s.list))
		mux.HandleFunc("POST "+v+"/sandboxes/{id}/connect", s.answer(s.connect))
	}
	mux.HandleFunc("GET /sandboxes/{id}", s.answer(s.info))
	mux.HandleFunc("DELETE /sandboxes/{id}", s.answer(s.kill))
	mux.HandleFunc("POST /sandboxes/{id}/resume", s.answer(s.resume))
	mux.HandleFunc("POST /sandboxes/{id}/pause", s.answer(s.pause))
	mux.HandleFunc("POST /sandboxes/{id}/fork", s.answer(s.fork))
	mux.HandleFunc("POST /sandboxes/{id}/snapshots", s.answer(s.takeSnapshot))
	mux.HandleFunc("GET /snapshots", s.answer(s.snapshots))
	mux.HandleFunc("POST /sandboxes/{id}/timeout", s.answer(s.timeout))
	mux.HandleFunc("POST /sandboxes/{id}/refreshes", s.answer(s.refresh))
	mux.HandleFunc("GET /sandboxes/metrics", s.answer(s.listMetrics))
	mux.HandleFunc("GET /sandboxes/{id}/metrics", s.answer(s.metrics))
	mux.HandleFunc("GET /sandboxes/{id}/logs", s.answer(s.oldLogs))
	mux.HandleFunc("GET /v2/sandboxes/{id}/logs", s.answer(s.logs))
	mux.HandleFunc("PUT /sandboxes/{id}/network", s.answer(s.setNetwork))
	mux.HandleFunc("GET /templates/aliases/{alias}", s.answer(s.alias))
	noTemplates := "templates are not built with this driver, which makes no images of sandboxes: name an image that the server has"
	if s.opts.Templates != nil {
		noTemplates = "templates are built in steps: update the SDK"
		for pattern, h := range s.opts.Templates.Routes() {
			if pattern == deleteTemplate {
				h = s.orSnapshot(h)
			}
			answer := s.answer(h)
			if strings.HasPrefix(pattern, http.MethodPut) {
				answer = drain(answer)
			}
			mux.HandleFunc(pattern, answer)
		}
	}
	if s.opts.Templates == nil {
		mux.HandleFunc(deleteTemplate, s.answer(s.orSnapshot(func(*http.Request, sandbox.Principal) (int, any, error) {
			return 0, nil, sandbox.Errorf(sandbox.Unsupported, "%s", noTemplates)
		})))
	}
	mux.HandleFunc("GET /secrets", s.answer(s.secrets))
	mux.HandleFunc("GET /secrets/{id}", s.answer(s.secret))
	mux.HandleFunc("/secrets", s.answer(s.changeSecret))
	mux.HandleFunc("/secrets/{rest...}", s.answer(s.changeSecret))
	mux.HandleFunc("GET /volumes", s.answer(s.volumes))
	mux.HandleFunc("POST /volumes", s.answer(s.makeVolume))
	mux.HandleFunc("GET /volumes/{id}", s.answer(s.volumeInfo))
	mux.HandleFunc("DELETE /volumes/{id}", s.answer(s.removeVolume))
	mux.HandleFunc("GET "+contentPath+"{id}/path", s.inVolume(s.describeFile))
	mux.HandleFunc("PATCH "+contentPath+"{id}/path", s.inVolume(s.changeFile))
	mux.HandleFunc("DELETE "+contentPath+"{id}/path", s.inVolume(s.removeFile))
	mux.HandleFunc("GET "+contentPath+"{id}/dir", s.inVolume(s.listFiles))
	mux.HandleFunc("POST "+contentPath+"{id}/dir", s.inVolume(s.makeDir))
	mux.HandleFunc("GET "+contentPath+"{id}/file", s.getFile)
	mux.HandleFunc("PUT "+contentPath+"{id}/file", s.inVolume(s.putFile))
	for path, what := range map[string]string{
		"/templates":              noTemplates,
		"/templates/{rest...}":    noTemplates,
		"/v2/templates/{rest...}": noTemplates,
		"/v3/templates/{rest...}": noTemplates,
		"/v2/templates":           noTemplates,
		"/v3/templates":           noTemplates,
	} {
		mux.HandleFunc(path, s.answer(func(r *http.Request, p sandbox.Principal) (int, any, error) {
			if r.PathValue("id") != "" {
				if _, err := s.get(r, p); err != nil {
					return 0, nil, err
				}
			}
			return 0, nil, sandbox.Errorf(sandbox.Unsupported, "%s", what)
		}))
	}
	mux.HandleFunc("/", s.answer(func(r *http.Request, _ sandbox.Principal) (int, any, error) {
		return 0, nil, sandbox.Errorf(sandbox.NotFound, "there is no %s %s in E2B's API", r.Method, short(r.URL.Path))
	}))
	return mux
}
