package transport

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"net/url"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/ledger"
)

// sessionParameter is the query parameter with the session's id, in the URL for
// POSTs.
const sessionParameter = "sessionid"

// An sseHandler serves the transport of version 2024-11-05. A GET opens a session
// and carries the server's messages; each POST carries a message of the client.
// The SDK's own handler is not used: it accepts POSTs from any valid token to any
// session.
type sseHandler struct {
	opts   Options
	calls  *calls
	places *openSessions

	mu       sync.Mutex
	sessions map[string]*sseSession
	closed   bool
}

type sseSession struct {
	transport *mcp.SSEServerTransport
	key       string // of the identity that opened the session
	place     *session
	end       func()
	ready     chan struct{} // closed when the session accepts messages, or has failed to connect

	mu    sync.Mutex
	calls map[jsonrpc.ID]sseCall // calls whose answers have not been sent
	over  bool
	// posted are the names of the ledgers of notifications that the SDK has not read,
	// in the order in which it reads them: posting is held while one is passed on.
	posting sync.Mutex
	posted  []string
}

// An sseCall is a call of an SSE session, from its POST until its answer has been
// sent.
type sseCall struct {
	name string // name of its ledger
	end  func() // ends its ledger
}

// begin records a call. It returns false if a call with the same ID is in
// progress, or if the session has ended.
func (s *sseSession) begin(id jsonrpc.ID, c sseCall) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.calls[id]; ok || s.over {
		return false
	}
	s.calls[id] = c
	return true
}

// answered ends a call after its answer has been sent.
func (s *sseSession) answered(id jsonrpc.ID) {
	s.mu.Lock()
	c, ok := s.calls[id]
	delete(s.calls, id)
	s.mu.Unlock()
	if ok {
		c.end()
	}
}

// gone ends all calls. No answer can be sent any more.
func (s *sseSession) gone() {
	s.mu.Lock()
	calls := s.calls
	s.calls, s.over = nil, true
	s.mu.Unlock()
	for _, c := range calls {
		c.end()
	}
}

// A ledgerTransport connects calls of a session to their ledgers, and ends the
// ledgers when the answers have been sent. On SSE, no HTTP request ends with the
// answer, so the request cannot end the ledger.
type ledgerTransport struct {
	mcp.Transport
	ses *sseSession
}

// Connect implements [mcp.Transport].
func (t ledgerTransport) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return ledgerConn{c, t.ses}, nil
}

type ledgerConn struct {
	mcp.Connection
	ses *sseSession
}

// Read implements [mcp.Connection].
func (c ledgerConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Connection.Read(ctx)
	if req, ok := m.(*jsonrpc.Request); ok {
		c.ses.mu.Lock()
		name := c.ses.calls[req.ID].name
		if !req.IsCall() && len(c.ses.posted) > 0 {
			name, c.ses.posted = c.ses.posted[0], c.ses.posted[1:]
		}
		c.ses.mu.Unlock()
		req.Extra = &mcp.RequestExtra{Header: http.Header{ledger.RequestHeader: {name}}}
	}
	return m, err
}

// Write implements [mcp.Connection].
func (c ledgerConn) Write(ctx context.Context, m jsonrpc.Message) error {
	err := c.Connection.Write(ctx, m)
	if res, ok := m.(*jsonrpc.Response); ok {
		c.ses.answered(res.ID)
	}
	return err
}

func newSSEHandler(o Options, c *calls, places *openSessions) *sseHandler {
	return &sseHandler{opts: o, calls: c, places: places, sessions: map[string]*sseSession{}}
}

// any reports whether a session is open.
func (h *sseHandler) any() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.sessions) > 0
}

func (h *sseHandler) serve(w http.ResponseWriter, r *http.Request, id auth.Identity) {
	switch r.Method {
	case http.MethodGet:
		h.open(w, r, id)
	case http.MethodPost:
		h.post(&errorWriter{ResponseWriter: w}, r, id)
	default:
		w.Header().Set("Allow", "GET, POST")
		writeError(w, http.StatusMethodNotAllowed, nil, jsonrpc.CodeInvalidRequest, "GET opens a session, POST sends to it")
	}
}

// open starts a session, which lasts as long as the request.
func (h *sseHandler) open(w http.ResponseWriter, r *http.Request, id auth.Identity) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	end := func() { cancel(errEnded) }
	name := rand.Text()
	ses := &sseSession{
		transport: &mcp.SSEServerTransport{
			Endpoint:            r.URL.Path + "?" + url.Values{sessionParameter: {name}}.Encode(),
			Response:            w,
			MaxRequestBodyBytes: h.opts.MaxMessageBytes,
		},
		key:   id.Key(),
		end:   end,
		ready: make(chan struct{}),
		calls: map[jsonrpc.ID]sseCall{},
	}
	defer ses.gone()
	place, err := h.places.begin(ctx, id)
	if err != nil {
		tooManySessions(w, nil)
		return
	}
	defer place.gone()
	place.bind("", end)
	ses.place = place
	ctx = context.WithValue(ctx, sessionKey{}, place)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache, no-transform")
	// Connect sends the client the URL for POSTs, and the client may post at
	// once. So register the session first; find waits until it is ready. Connect
	// also blocks until the client reads, so it must not run under h.mu.
	if !h.add(name, ses) {
		writeError(w, http.StatusServiceUnavailable, nil, jsonrpc.CodeInternalError, ErrShutdown.Error())
		return
	}
	defer h.remove(name)
	ss, err := h.opts.MCP.Connect(withLife(ctx), namedTransport{ledgerTransport{ses.transport, ses}, h.calls, "sse " + name}, nil)
	if err != nil {
		h.remove(name)
		close(ses.ready)
		h.opts.Log.Warn("open sse session", "error", err)
		return // the client is gone; an error answer is no longer possible
	}
	close(ses.ready)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ss.Wait()
	}()
	select {
	case <-ctx.Done():
	case <-ended:
	}
	h.remove(name)
	ss.Close()
	<-ended
}

// add registers a session. It returns false during shutdown.
func (h *sseHandler) add(name string, ses *sseSession) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.sessions[name] = ses
	return true
}

func (h *sseHandler) remove(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sessions, name)
}

// find waits until the session with that id is ready and returns it. It returns
// nil for an unknown session and for a session of another identity.
func (h *sseHandler) find(ctx context.Context, name string, id auth.Identity) *sseSession {
	h.mu.Lock()
	ses := h.sessions[name]
	h.mu.Unlock()
	if ses == nil || ses.key != id.Key() {
		return nil
	}
	select {
	case <-ses.ready:
	case <-ctx.Done():
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sessions[name] // nil if the connection failed
}

// post passes one message to a session.
func (h *sseHandler) post(w *errorWriter, r *http.Request, id auth.Identity) {
	ses := h.find(r.Context(), r.URL.Query().Get(sessionParameter), id)
	if ses == nil {
		writeError(w, http.StatusNotFound, nil, codeSessionEnd, "session not found")
		return
	}
	ses.place.touch()
	body, ok := readBody(w, r, h.opts.MaxMessageBytes)
	if !ok {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	m, err := jsonrpc.DecodeMessage(body)
	if err != nil {
		writeError(w, http.StatusBadRequest, nil, jsonrpc.CodeParseError, "the body is not one message of JSON-RPC")
		return
	}
	req, ok := m.(*jsonrpc.Request)
	if !ok {
		ses.transport.ServeHTTP(w, r)
		return
	}
	if _, err := readEnvelope(body); err != nil {
		writeError(w, http.StatusBadRequest, nil, jsonrpc.CodeInvalidRequest, err.Error())
		return
	}
	// The request ends as soon as the session has the message.
	name, end, err := h.calls.ledgers.Open(r.Context(), id.Principal, 1, messageCost(body))
	if err != nil {
		tooMuch(w, nil, err)
		return
	}
	if !req.IsCall() {
		ses.notify(w, r, name, end)
		return
	}
	if !ses.begin(req.ID, sseCall{name, end}) {
		end()
		writeError(w, http.StatusBadRequest, nil, jsonrpc.CodeInvalidRequest, "a call with this id is under way")
		return
	}
	ses.transport.ServeHTTP(w, r)
	if w.status != 0 {
		ses.answered(req.ID) // the session refused the message
	}
}

// notify passes on a notification whose ledger has that name. end ends the ledger.
func (s *sseSession) notify(w *errorWriter, r *http.Request, name string, end func()) {
	s.posting.Lock()
	defer s.posting.Unlock()
	n := s.place.notes.add(name, 1, end)
	s.mu.Lock()
	s.posted = append(s.posted, name)
	s.mu.Unlock()
	s.transport.ServeHTTP(w, r)
	if w.status == 0 {
		return
	}
	s.mu.Lock()
	s.posted = s.posted[:len(s.posted)-1] // the session refused it, and does not read it
	s.mu.Unlock()
	s.place.notes.drop(n)
}

// closeAll ends every session and prevents new ones.
func (h *sseHandler) closeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, ses := range h.sessions {
		ses.end()
	}
}
