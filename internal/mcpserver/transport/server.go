package transport

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/ledger"
)

// sseFarewell is how long Shutdown waits for the last answers on SSE to be sent.
const sseFarewell = 100 * time.Millisecond

// closeTimeout is how long Shutdown waits for sessions to close.
const closeTimeout = 2 * time.Second

// A Server serves an MCP server of the SDK to clients. It is safe for concurrent
// use.
type Server struct {
	opts     Options
	calls    *calls
	sessions *openSessions
	sse      *sseHandler
	http     *httpHandler
}

// New returns a Server. It adds middleware to Options.MCP that bounds what answers
// repeat; middleware that is added later sees requests first.
func New(o Options) *Server {
	o = o.withDefaults()
	s := &Server{opts: o, calls: newCalls(o.Log, ledger.NewBook(o.Shares)), sessions: newOpenSessions(o.Shares.Sessions)}
	s.sse = newSSEHandler(o, s.calls, s.sessions)
	s.http = &httpHandler{opts: o, streamable: newStreamable(o, s.calls, s.sessions), sse: s.sse}
	o.MCP.AddReceivingMiddleware(sendable, boundNames, countNotes)
	return s
}

// Handler serves MCP over HTTP: Streamable HTTP at /mcp, and the older HTTP with
// server-sent events at /sse. It serves the same at /mcp/NAME and /mcp/NAME/sse,
// where NAME is Options.Name.
//
// The caller is the [auth.Identity] in the request's context; without one the
// answer is 401. Handler does not check tokens, hosts or origins: its caller
// must.
func (s *Server) Handler() http.Handler { return s.http }

// ServeStdio serves one client, the local user, until in or ctx ends. It writes
// only messages of the protocol to out. Before it returns, it cancels the calls
// in progress and closes both streams. It returns nil if the client closed either
// stream, and ctx's error if ctx ended.
func (s *Server) ServeStdio(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	return serveStdio(ctx, s.opts, s.calls, in, out)
}

// Begin registers a call of the session with that id, which may be "". It refuses
// the call with [sandbox.Unavailable] during shutdown. extra is the request's, or nil.
//
// The context that Begin returns has the [ledger.Ledger] of the call. It ends with
// ctx, with the session, or when Shutdown cancels calls. If the client cancels the
// call, its cause is a [Cancelled]. The caller must call end.
func (s *Server) Begin(ctx context.Context, id auth.Identity, session string, extra *mcp.RequestExtra) (_ context.Context, end func(), _ error) {
	var header http.Header
	if extra != nil {
		header = extra.Header
	}
	ctx, endCall, err := s.calls.begin(ctx, session, header.Get(callHeader), id)
	if err != nil {
		return nil, nil, err
	}
	ctx, leave := s.calls.ledgers.Enter(ctx, header)
	return ctx, func() {
		leave()
		endCall()
	}, nil
}

// Closing returns a context that ends with [ErrShutdown] when Shutdown cancels the
// calls that still run.
func (s *Server) Closing() context.Context { return s.calls.closing }

// Busy reports whether a session over HTTP is open.
func (s *Server) Busy() bool { return s.sessions.count() > 0 }

// End ends the sessions of all identities for which gone returns true. It does
// not wait for their end.
func (s *Server) End(gone func(auth.Identity) bool) { s.sessions.end(gone) }

// Shutdown refuses new calls and waits for the calls in progress until ctx ends.
// Then it cancels the remaining calls, which must answer their callers. Last, it
// closes every session. It returns ctx's error if it had to cancel a call.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.calls.drain(ctx)
	if s.sse.any() {
		// SSE gives no signal that an answer has been sent.
		time.Sleep(sseFarewell)
	}
	s.sse.closeAll()
	s.closeSessions()
	return err
}

// closeSessions closes the sessions and waits for them for at most closeTimeout.
// Closing a session can block on a client that does not read, or on a call that
// ignores its context.
func (s *Server) closeSessions() {
	var closing sync.WaitGroup
	for ss := range s.opts.MCP.Sessions() {
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
		s.opts.Log.Warn("shutdown leaves sessions that did not close in time", "after", closeTimeout)
	}
}
