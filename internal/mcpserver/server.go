package mcpserver

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/profile"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/task"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Options are the arguments of [New]. Engine and Log must be set.
type Options struct {
	Engine  Engine
	Log     *slog.Logger
	Version string

	// Profile, if not nil, is served instead of this package's own tools and
	// resources.
	Profile *profile.Profile

	// Ports makes URLs for ports of sandboxes. Nil: the tool preview_url is not
	// offered.
	Ports Ports
	// Files makes URLs for files, and HostFiles copies files from and to this
	// machine. Both may be nil. HostFiles is only for a server on stdio.
	Files     Files
	HostFiles HostFiles

	// Tools, if not empty, is the list of tools to offer; the others are left
	// out. ReadOnly leaves out all tools that change something.
	Tools    []string
	ReadOnly bool

	// MaxMessageBytes is the largest message that a client may send, in bytes.
	// Zero is [DefaultMaxMessageBytes].
	MaxMessageBytes int64
	// MaxSessions bounds the open HTTP sessions of clients that speak an older
	// version of the protocol. Zero is [DefaultMaxSessions]. It is ignored if
	// Shares is set.
	MaxSessions int
	// Shares are the resource pools that all principals share, possibly with
	// other servers of the process. Nil makes pools for this server alone.
	Shares *Shares
	// SessionTimeout is the time without a request after which a session ends.
	// Zero is [DefaultSessionTimeout].
	SessionTimeout time.Duration
	// Patience is how long a call waits for its run if the caller does not
	// specify it. Zero is [DefaultPatience].
	Patience time.Duration

	// Extension adds tools, resources and prompts that are not Glovebox's. Nil adds
	// none. It is ignored if Profile is set.
	Extension *Extension
}

// Defaults of [Options].
const (
	DefaultMaxMessageBytes = 8 << 20
	DefaultMaxSessions     = 1000
	DefaultSessionTimeout  = 2 * time.Hour
	// DefaultPatience is below one minute, the usual timeout of clients for a
	// call. So the client gets the run's id and the output so far, and not a
	// timeout.
	DefaultPatience = 50 * time.Second
)

// MaxWait is the longest time that a caller may ask a call to wait for a run.
const MaxWait = 10 * time.Minute

// A Server offers an engine over MCP. It is safe for concurrent use.
type Server struct {
	engine Engine
	shares *Shares
	log    *slog.Logger
	opts   Options
	mcp    *mcp.Server
	watch  *watcher
	sse    *sseHandler
	http   *httpHandler
	// sessions and ledgers belong to clients and requests over HTTP.
	sessions *openSessions
	ledgers  *ledgers

	// closing ends, with a cause, when Shutdown cancels the calls that still run.
	closing context.Context
	close   context.CancelCauseFunc

	mu       sync.Mutex
	draining bool
	calls    map[*activeCall]struct{}
	busy     int           // calls, and HTTP requests whose answer may not have been sent yet
	idle     chan struct{} // closed when draining and nothing is busy
}

// sseFarewell is how long Shutdown waits for the last answers on SSE to be sent.
const sseFarewell = 100 * time.Millisecond

// closeTimeout is how long Shutdown waits for sessions to close.
const closeTimeout = 2 * time.Second

// errShutdown is the cause with which the contexts of calls end at shutdown.
var errShutdown = errors.New("the server is shutting down")

// New returns a Server. If Options.Tools names an unknown tool, it returns an
// error wrapping [sandbox.Invalid].
func New(o Options) (*Server, error) {
	o.MaxMessageBytes = orDefault(o.MaxMessageBytes, DefaultMaxMessageBytes)
	o.SessionTimeout = orDefault(o.SessionTimeout, DefaultSessionTimeout)
	o.Patience = orDefault(o.Patience, DefaultPatience)

	if o.Shares == nil {
		o.Shares = NewShares(o.MaxSessions)
	}
	s := &Server{
		engine: countedEngine{o.Engine, o.Shares}, shares: o.Shares, log: o.Log, opts: o,
		sessions: newOpenSessions(o.Shares.sessions),
		ledgers:  &ledgers{shares: o.Shares, open: map[string]*ledger{}},
		idle:     make(chan struct{}), calls: map[*activeCall]struct{}{},
	}
	s.closing, s.close = context.WithCancelCause(context.Background())
	s.watch = newWatcher(s)
	s.sse = newSSEHandler(s)
	self := &mcp.Implementation{Name: "glovebox", Title: "Glovebox", Version: o.Version}
	if p := o.Profile; p != nil {
		self.Name, self.Version = p.ServerName, p.ServerVersion
	}
	s.mcp = mcp.NewServer(self, s.serverOptions())

	if err := s.addTools(); err != nil {
		return nil, err
	}
	if o.Profile != nil {
		s.addProfileResources(o.Profile)
	} else {
		s.addResources()
		if err := s.addTasks(); err != nil {
			return nil, err
		}
		if o.Extension != nil {
			o.Extension.Add(s.mcp)
		}
	}
	s.mcp.AddReceivingMiddleware(s.filterTools, sendable, task.WithSlot, boundNames, countNotes)
	s.http = newHTTPHandler(s)
	return s, nil
}

func orDefault[T comparable](v, d T) T {
	var zero T
	if v == zero {
		return d
	}
	return v
}

// addTools registers the tools that Options.Tools and Options.ReadOnly allow.
func (s *Server) addTools() error {
	all := s.tools()
	for _, name := range s.opts.Tools {
		if !slices.ContainsFunc(all, func(t tool) bool { return t.name == name }) {
			names := make([]string, len(all))
			for i, t := range all {
				names[i] = t.name
			}
			return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "tools: there is no tool %q", name),
				"the tools are %s", joinWords(names))
		}
	}
	for _, t := range all {
		if len(s.opts.Tools) > 0 && !slices.Contains(s.opts.Tools, t.name) {
			continue
		}
		if s.opts.ReadOnly && !t.readOnly {
			continue
		}
		s.mcp.AddTool(t.definition(), s.handler(t))
	}
	return nil
}

// tools returns every tool, in the order of the documentation.
func (s *Server) tools() []tool {
	if s.opts.Profile != nil {
		return s.profileTools(s.opts.Profile)
	}
	all := []tool{
		s.runCode(), s.runCommand(), s.getRun(), s.stopRun(), s.sendInput(),
		s.createSandbox(), s.getSandbox(), s.listSandboxes(), s.setNetwork(), s.stopSandbox(),
		s.writeFile(), s.readFile(), s.listFiles(),
		s.installPackages(), s.listLanguages(),
		s.listWorkspaces(), s.deleteWorkspace(),
	}
	if s.opts.Files != nil {
		all = append(all, s.fileURL())
	}
	if s.opts.Ports != nil {
		all = append(all, s.previewURL())
	}
	if s.opts.HostFiles != nil {
		all = append(all, s.copyIn(), s.copyOut())
	}
	return all
}

// filterTools removes from tools/list the tools that the caller's scopes do not
// allow.
func (s *Server) filterTools(next mcp.MethodHandler) mcp.MethodHandler {
	scopes := map[string]auth.Scope{}
	for _, t := range s.tools() {
		scopes[t.name] = t.scope
	}
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		list, ok := res.(*mcp.ListToolsResult)
		if err != nil || !ok {
			return res, err
		}
		id, _ := auth.FromContext(ctx)
		list.Tools = slices.DeleteFunc(list.Tools, func(t *mcp.Tool) bool {
			scope, ours := scopes[t.Name]
			return ours && !id.Can(scope)
		})
		return list, nil
	}
}

// lifeKey is a context key. Its value is the context of the whole session, which
// ends when the client is gone for good. The SDK does not pass the end of a
// session's context on to calls, because clients of some transports reconnect.
type lifeKey struct{}

// withLife returns ctx for a session; its calls are cancelled when ctx ends.
func withLife(ctx context.Context) context.Context {
	return context.WithValue(ctx, lifeKey{}, ctx)
}

// An activeCall is a call in progress.
type activeCall struct {
	session string // id of the session over HTTP, or ""
	key     string // of the caller's identity
	cancel  context.CancelCauseFunc
}

// begin registers a call, or refuses it with [sandbox.Unavailable] during
// shutdown. The context that it returns ends with ctx, with the session, or when
// Shutdown cancels calls. The caller must call end.
func (s *Server) begin(ctx context.Context, session string, id auth.Identity) (_ context.Context, end func(), _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return nil, nil, sandbox.Errorf(sandbox.Unavailable, "%w", errShutdown)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stops := []func() bool{context.AfterFunc(s.closing, func() { cancel(context.Cause(s.closing)) })}
	if life, ok := ctx.Value(lifeKey{}).(context.Context); ok {
		stops = append(stops, context.AfterFunc(life, func() { cancel(context.Cause(life)) }))
	}
	c := &activeCall{session: session, key: id.Key(), cancel: cancel}
	s.calls[c] = struct{}{}
	s.busy++
	used := sessionOf(ctx).use()
	return ctx, func() {
		used()
		for _, stop := range stops {
			stop()
		}
		cancel(nil)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.calls, c)
		s.leaveLocked()
	}, nil
}

// enter registers an HTTP request until leave is called. An answer has been sent
// only when its request has ended, so Shutdown waits for requests, too.
func (s *Server) enter() (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.leaveLocked()
	}
}

// leaveLocked ends one use of the server; s.mu is held.
func (s *Server) leaveLocked() {
	s.busy--
	s.checkIdleLocked()
}

// checkIdleLocked closes s.idle, once, if the server is draining and nothing is
// in progress; s.mu is held.
func (s *Server) checkIdleLocked() {
	if !s.draining || s.busy > 0 {
		return
	}
	select {
	case <-s.idle:
	default:
		close(s.idle)
	}
}

// endSession cancels the calls of a session that its client ends.
func (s *Server) endSession(session string, id auth.Identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.calls {
		if session != "" && c.session == session && c.key == id.Key() {
			c.cancel(errors.New("the client ended its session"))
		}
	}
}

// Shutdown refuses new calls and waits for the calls in progress until ctx ends.
// Then it cancels the remaining calls, which stops their runs and answers their
// callers. Last, it closes every session. It returns ctx's error if it had to
// cancel a call.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.draining = true
	s.checkIdleLocked()
	s.mu.Unlock()

	var err error
	select {
	case <-s.idle:
	case <-ctx.Done():
		s.mu.Lock()
		left := len(s.calls)
		s.mu.Unlock()
		if left > 0 {
			err = ctx.Err()
			s.log.Warn("shutdown cancels calls that did not finish", "calls", left)
		}
	}
	s.close(errShutdown)
	select {
	case <-s.idle:
	case <-time.After(stopTimeout + time.Second):
		// Stopping a run has a timeout, so the cause is a client that does not
		// read.
		s.log.Warn("shutdown leaves answers that clients did not take")
	}
	if s.sse.any() {
		// SSE gives no signal that an answer has been sent.
		time.Sleep(sseFarewell)
	}
	s.sse.closeAll()
	s.closeSessions()
	s.watch.stopAll()
	return err
}

// closeSessions closes the sessions and waits for them for at most closeTimeout.
// Closing a session can block on a client that does not read, or on a call that
// ignores its context.
func (s *Server) closeSessions() {
	var closing sync.WaitGroup
	for ss := range s.mcp.Sessions() {
		closing.Go(func() { ss.Close() })
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		closing.Wait()
	}()
	select {
	case <-closed:
	case <-time.After(closeTimeout):
		s.log.Warn("shutdown leaves sessions that did not close in time", "after", closeTimeout)
	}
}
