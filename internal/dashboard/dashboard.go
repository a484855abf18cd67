// Package dashboard serves the pages on which people see their sandboxes and runs,
// and stop them. A page shows the objects of the principal that signed in, and no
// others. Two pages show more to people whose token has the scope admin: sums of usage
// of all principals, and the audit log.
//
// Only package app imports it. [New] makes a [Server], which httpserver serves below
// [Path]. [Server.Authenticate] identifies the person by a session cookie, and serves
// the sign-in page. Sessions and one-time links are in memory: a restart ends them.
// [Server.Run] measures sandboxes for the charts of pages. A Server needs no Close, and
// is safe for concurrent use.
//
// All pages are complete without scripts. Scripts only replace parts of a page by
// newer ones, which the server renders from the same templates. Data of sandboxes is
// untrusted: it reaches a page as escaped text, or as a picture of a known type.
package dashboard

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Path is the path below which all pages are.
const Path = "/ui/"

// An Engine is the part of package engine that the pages need. Each method acts for
// one principal, for which the objects of others do not exist.
type Engine interface {
	Get(ctx context.Context, p sandbox.Principal, id string) (sandbox.Sandbox, error)
	List(ctx context.Context, p sandbox.Principal) ([]sandbox.Sandbox, error)
	Loads(ctx context.Context, p sandbox.Principal) map[string]sandbox.Load
	Stop(ctx context.Context, p sandbox.Principal, id string) error
	Runs(ctx context.Context, p sandbox.Principal, id string, limit int) ([]sandbox.Run, error)
	LastRuns(ctx context.Context, p sandbox.Principal, limit int) ([]sandbox.ListedRun, error)
	Wait(ctx context.Context, p sandbox.Principal, runID string) (sandbox.Run, error)
	Hibernate(ctx context.Context, p sandbox.Principal, id string) error
	Wake(ctx context.Context, p sandbox.Principal, id string) error
	SendInput(ctx context.Context, p sandbox.Principal, runID string, data []byte, eof bool) error
	Resize(ctx context.Context, p sandbox.Principal, runID string, size sandbox.TerminalSize) error
	Follow(ctx context.Context, p sandbox.Principal, runID string, f func(stream sandbox.StreamName, data []byte) error) error
	StopRun(ctx context.Context, p sandbox.Principal, runID string) (sandbox.Run, error)
	ReadOutput(ctx context.Context, p sandbox.Principal, runID string, stream sandbox.StreamName, offset, limit int64) (data []byte, total int64, err error)
	Results(ctx context.Context, p sandbox.Principal, runID string) (sandbox.Results, error)
	Connections(ctx context.Context, p sandbox.Principal, id string, limit int) ([]sandbox.Connection, error)
	Start(ctx context.Context, p sandbox.Principal, r sandbox.RunRequest) (sandbox.Run, error)
	Workspaces(ctx context.Context, p sandbox.Principal) ([]sandbox.Workspace, error)

	ListFiles(ctx context.Context, p sandbox.Principal, id, path string, depth int) (files []sandbox.File, truncated bool, err error)
	StatFile(ctx context.Context, p sandbox.Principal, id, path string) (sandbox.File, error)
	ReadFile(ctx context.Context, p sandbox.Principal, id, path string, offset, length int64) (r io.ReadCloser, size int64, err error)
	WriteFile(ctx context.Context, p sandbox.Principal, id, path string, r io.Reader, appendTo bool) error

	Snapshots
}

// A Verifier verifies tokens, reports whether an identity was revoked, lists all tokens,
// and has people sign in at an issuer; see the methods of [auth.Auth].
type Verifier interface {
	Verify(ctx context.Context, token string) (auth.Identity, error)
	Gone(ctx context.Context, id auth.Identity) (bool, error)
	List(ctx context.Context) ([]sandbox.Token, error)
	BeginSignIn(ctx context.Context) (auth.SignIn, error)
	FinishSignIn(ctx context.Context, s auth.SignIn, code string) (auth.Identity, error)
}

// Options are the arguments of [New]. Engine, Auth, Accounts and Log must be set.
type Options struct {
	Engine Engine
	Auth   Verifier
	Log    *slog.Logger
	// Shard is in cookies and one-time links; the zero value is none.
	Shard sandbox.Shard
	// Issuer is the URL of the issuer at which people sign in, or "".
	Issuer string
	// Version is the version of the program, for the foot of each page.
	Version string
	// Languages are the names of the languages in which people can run code.
	Languages []string
	// Accounts know what principals used.
	Accounts Accounts
	// Ports make links to the ports of sandboxes. With nil, the pages show no ports.
	Ports Ports
	// MaxLimits are the most that a sandbox can have; zeros are no limits.
	MaxLimits sandbox.Limits
	// ShellTime is the longest time of a shell.
	ShellTime time.Duration
	// NoSnapshots says why there can be no snapshots and copies of sandboxes; nil if
	// there can.
	NoSnapshots error
	// NoRollback says why no sandbox can return to a snapshot; nil if they can.
	NoRollback error
	// Terminal reports whether there is a program for terminals in browsers; nil is
	// whether this build has one.
	Terminal func() bool
	// Doctor checks this machine for the operator, or is nil.
	Doctor func(context.Context) []Finding
	// Audit is the record of actions, or nil if the server keeps none.
	Audit AuditLog
	// TokenForm lets people sign in by typing a token. Without it, only one-time
	// links sign in. Set it only if no page of a sandbox can run code at the host
	// name of this server.
	TokenForm bool
	// Secure says that browsers reach the server over HTTPS only. Cookies are then
	// for HTTPS alone.
	Secure bool
	// Now is the clock; nil is [time.Now].
	Now func() time.Time
}

// A Server serves the dashboard.
type Server struct {
	opts     Options
	sessions *sessions
	links    *oneTime[auth.Identity] // by the code of a one-time link
	flows    *oneTime[flow]          // by the value of a cookie, as arrivals
	arrivals *oneTime[arrival]
	attempts *attempts
	checked  auditState
	loads    *loads
	examined doctorState
	pages    *http.ServeMux // for people with a session
	public   *http.ServeMux // for everybody
	crossing *http.CrossOriginProtection
}

// New returns a Server.
func New(o Options) *Server {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Terminal == nil {
		o.Terminal = hasTerminal
	}
	s := &Server{
		opts:     o,
		sessions: newSessions(o.Now, o.Shard),
		links:    newOneTime[auth.Identity](o.Now, o.Shard, linkTTL, maxLinks),
		flows:    newOneTime[flow](o.Now, o.Shard, flowTTL, maxFlows),
		arrivals: newOneTime[arrival](o.Now, o.Shard, arrivalTTL, maxArrivals),
		attempts: newAttempts(),
		loads:    newLoads(o.Now),
		pages:    http.NewServeMux(),
		public:   http.NewServeMux(),
		crossing: http.NewCrossOriginProtection(),
	}
	s.public.HandleFunc("GET "+Path+"static/{name}", s.static)
	s.public.HandleFunc("GET "+signInPath, s.showSignIn)
	s.public.HandleFunc("POST "+signInPath, s.signIn)
	s.public.HandleFunc("GET "+openPath, s.open)
	s.public.HandleFunc("GET "+arrivedPath, s.arrived)
	s.public.HandleFunc("GET "+issuerPath, s.toIssuer)
	s.public.HandleFunc("GET "+IssuerBackPath, s.fromIssuer)

	s.page("GET "+Path+"{$}", s.now)
	s.page("GET "+Path+"events", s.nowEvents)
	s.page("POST "+signOutPath, s.signOut)
	s.page("GET "+Path+"sandboxes/{id}", s.sandbox)
	s.page("GET "+Path+"sandboxes/{id}/events", s.sandboxEvents)
	s.page("POST "+Path+"sandboxes/{id}/stop", s.stopSandbox)
	s.page("POST "+Path+"sandboxes/{id}/hibernate", s.hibernate)
	s.page("POST "+Path+"sandboxes/{id}/wake", s.wake)
	s.aboutSnapshots("snapshots", s.takeSnapshot)
	s.aboutSnapshots("snapshots/{snapshot}/rollback", s.rollback)
	s.aboutSnapshots("snapshots/{snapshot}/delete", s.removeSnapshot)
	s.aboutSnapshots("fork", s.fork)
	s.page("GET "+Path+"sandboxes/{id}/preview", s.preview)
	s.page("GET "+Path+"sandboxes/{id}/terminal", s.terminal)
	s.page("POST "+Path+"sandboxes/{id}/terminal", s.startShell)
	s.page("GET "+Path+"sandboxes/{id}/terminal/socket", s.terminalSocket)
	s.page("POST "+Path+"runs/{id}/input", s.sendLine)
	s.page("GET "+Path+"runs/{id}", s.run)
	s.page("GET "+Path+"runs/{id}/events", s.runEvents)
	s.page("POST "+Path+"runs/{id}/stop", s.stopRun)
	s.page("GET "+Path+"runs/{id}/output/{stream}", s.output)
	s.page("GET "+Path+"runs/{id}/results/{number}", s.picture)
	s.page("GET "+Path+"runs/{id}/pictures/{number}", s.filePicture)
	s.page("GET "+Path+"sandboxes/{id}/files", s.files)
	s.page("POST "+Path+"sandboxes/{id}/files", s.upload)
	s.page("GET "+Path+"sandboxes/{id}/file", s.file)
	s.page("GET "+Path+"sandboxes/{id}/download", s.download)
	s.page("GET "+Path+"sandboxes/{id}/picture", s.fileAsPicture)
	s.page("GET "+Path+"workspaces", s.workspaces)
	s.page("GET "+Path+"usage", s.usage)
	s.page("GET "+Path+"audit", s.audit)
	s.page("POST "+Path+"audit/verify", s.verifyAudit)
	s.page("GET "+Path+"try", s.try)
	s.page("POST "+Path+"try", s.runCode)
	s.page("GET "+Path+"settings", s.settings)
	s.page("POST "+Path+"settings/doctor", s.examine)
	s.page(Path, func(http.ResponseWriter, *http.Request, *session) error {
		return sandbox.Errorf(sandbox.NotFound, "there is no such page")
	})
	return s
}

// page adds a page for people with a session. The answer to an error is a page that
// says it.
func (s *Server) page(pattern string, serve func(http.ResponseWriter, *http.Request, *session) error) {
	s.pages.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		sess, ok := sessionOf(r.Context())
		if !ok {
			s.Refuse(w, r, sandbox.Errorf(sandbox.Unauthenticated, "you are not signed in"))
			return
		}
		if changes(r) && !sess.id.Can(auth.ScopeRun) {
			s.Refuse(w, r, sandbox.WithHint(sandbox.Errorf(sandbox.Forbidden, "your token can only read"), "sign in with a token of the role member"))
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(sess.ctx, cancel)()
		if err := serve(w, r.WithContext(ctx), sess); err != nil {
			s.Refuse(w, r, err)
		}
	})
}

// changes reports whether a request does more than read: it changes something, opens a
// shell, or makes a link that gives access to a port.
func changes(r *http.Request) bool {
	if r.URL.Path == signOutPath {
		return false
	}
	return r.Method != http.MethodGet && r.Method != http.MethodHead ||
		strings.HasSuffix(r.URL.Path, "/terminal/socket") || strings.HasSuffix(r.URL.Path, "/preview")
}

// ServeHTTP serves the pages for people whose session Authenticate found.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.pages.ServeHTTP(w, r) }

// Lasts reports whether a request of a person with a session opens a stream of events,
// or a terminal.
func (s *Server) Lasts(r *http.Request) bool {
	return r.Method == http.MethodGet && (strings.HasSuffix(r.URL.Path, "/events") || strings.HasSuffix(r.URL.Path, "/terminal/socket"))
}
