package mcpserver

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
)

// sessionParameter names an SSE session in the address that its messages are
// posted to.
const sessionParameter = "sessionid"

// An sseHandler serves the transport of version 2024-11-05: a GET opens a
// session and is its way out, POSTs are its way in. It is not the SDK's own
// handler because that lets anybody who has a valid token post to any session.
type sseHandler struct {
	server *Server

	mu       sync.Mutex
	sessions map[string]*sseSession
	closed   bool
}

type sseSession struct {
	transport *mcp.SSEServerTransport
	key       string // of the identity that opened it
	place     *session
	end       context.CancelFunc
}

// A sentTransport tells a session which of its answers have left: on this
// transport no request over HTTP ends with the answer.
type sentTransport struct {
	mcp.Transport
	place *session
}

// Connect implements [mcp.Transport].
func (t sentTransport) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return sentConn{c, t.place}, nil
}

type sentConn struct {
	mcp.Connection
	place *session
}

// Write implements [mcp.Connection].
func (c sentConn) Write(ctx context.Context, m jsonrpc.Message) error {
	err := c.Connection.Write(ctx, m)
	if _, ok := m.(*jsonrpc.Response); ok {
		c.place.sent()
	}
	return err
}

func newSSEHandler(s *Server) *sseHandler {
	return &sseHandler{server: s, sessions: map[string]*sseSession{}}
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

// open begins a session, which lasts as long as the request.
func (h *sseHandler) open(w http.ResponseWriter, r *http.Request, id auth.Identity) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	name := rand.Text()
	ses := &sseSession{
		transport: &mcp.SSEServerTransport{
			Endpoint:            r.URL.Path + "?" + url.Values{sessionParameter: {name}}.Encode(),
			Response:            w,
			MaxRequestBodyBytes: h.server.opts.MaxMessageBytes,
		},
		key: id.Key(),
		end: cancel,
	}
	place, err := h.server.sessions.begin(ctx, id)
	if err != nil {
		tooManySessions(w, nil)
		return
	}
	defer place.gone()
	place.bind("", cancel)
	place.queues = true
	ses.place = place
	ctx = context.WithValue(ctx, sessionKey{}, place)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache, no-transform")
	// The client may post as soon as it is told where to, which connecting
	// does, so the session must be known by then: posts wait for the lock.
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		writeError(w, http.StatusServiceUnavailable, nil, jsonrpc.CodeInternalError, errShutdown.Error())
		return
	}
	ss, err := h.server.mcp.Connect(withLife(ctx), sentTransport{ses.transport, place}, nil)
	if err == nil {
		h.sessions[name] = ses
	}
	h.mu.Unlock()
	if err != nil {
		h.server.log.Warn("open sse session", "error", err)
		return // the client is gone: the answer had begun
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ss.Wait()
	}()
	select {
	case <-ctx.Done():
	case <-ended:
	}
	h.mu.Lock()
	delete(h.sessions, name)
	h.mu.Unlock()
	ss.Close()
	<-ended
}

// post sends one message to a session. A session of somebody else does not
// exist.
func (h *sseHandler) post(w http.ResponseWriter, r *http.Request, id auth.Identity) {
	h.mu.Lock()
	ses := h.sessions[r.URL.Query().Get(sessionParameter)]
	h.mu.Unlock()
	if ses == nil || ses.key != id.Key() {
		writeError(w, http.StatusNotFound, nil, codeSessionEnd, "session not found")
		return
	}
	ses.place.touch()
	ses.transport.ServeHTTP(w, r)
}

// closeAll ends every session and lets no more begin.
func (h *sseHandler) closeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, ses := range h.sessions {
		ses.end()
	}
}
