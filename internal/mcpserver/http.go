package mcpserver

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	sdkauth "github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/task"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// The paths that Handler serves.
const (
	StreamablePath = "/mcp"
	SSEPath        = "/sse"
)

// These names and codes of the protocol decide which era a request belongs to.
const (
	sessionHeader  = "Mcp-Session-Id"
	versionHeader  = "Mcp-Protocol-Version"
	firstModern    = "2026-07-28"
	codeSessionEnd = -32001
)

// retryAfter is the Retry-After of an answer that refuses a session.
const retryAfter = 5 * time.Second

// Handler serves MCP over HTTP: Streamable HTTP at /mcp, and the older HTTP with
// server-sent events at /sse. It serves the same at /mcp/NAME and /mcp/NAME/sse,
// where NAME is the profile's name, or [NativeProfile].
//
// The caller is the [auth.Identity] in the request's context; without one the
// answer is 401. Handler does not check tokens, hosts or origins: its caller
// must.
func (s *Server) Handler() http.Handler { return s.http }

func newHTTPHandler(s *Server) *httpHandler {
	get := func(*http.Request) *mcp.Server { return s.mcp }
	return &httpHandler{
		server: s,
		// A stateless handler of the SDK serves only the versions from 2026-07-28
		// on. A handler with sessions serves only the earlier versions.
		modern: identify(mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{
			Stateless:                    true,
			Logger:                       s.log,
			MaxRequestBodyBytes:          -1, // bounded by readBody
			PropagateRequestCancellation: true,
			DisableLocalhostProtection:   true, // the caller's guard is stricter
		})),
		single: identify(mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{
			Stateless:                    true,
			JSONResponse:                 true,
			Logger:                       s.log,
			MaxRequestBodyBytes:          -1,
			PropagateRequestCancellation: true,
			DisableLocalhostProtection:   true,
		})),
		legacy: identify(mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{
			Logger:                     s.log,
			EventStore:                 newEventStore(s.shares.events),
			SessionTimeout:             s.opts.SessionTimeout,
			MaxRequestBodyBytes:        -1,
			DisableLocalhostProtection: true,
		})),
	}
}

type httpHandler struct {
	server         *Server
	modern, legacy http.Handler
	single         http.Handler // handles each request on its own and answers in JSON
}

func (h *httpHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, ok := auth.FromContext(r.Context())
	if !ok {
		w.Header().Set("WWW-Authenticate", "Bearer")
		writeError(w, http.StatusUnauthorized, nil, jsonrpc.CodeInvalidRequest, "no token")
		return
	}
	own := StreamablePath + "/" + h.server.profileName()
	switch r.URL.Path {
	case StreamablePath, own:
		if p := h.server.opts.Profile; p != nil && p.Sessionless && r.Header.Get(sessionHeader) == "" {
			h.serveSessionless(w, r)
			return
		}
		h.serveStreamable(w, r, id)
	case SSEPath, own + SSEPath:
		h.server.sse.serve(w, r, id)
	default:
		writeError(w, http.StatusNotFound, nil, jsonrpc.CodeInvalidRequest, "there is nothing at this path; MCP is at "+StreamablePath)
	}
}

func (h *httpHandler) serveStreamable(w http.ResponseWriter, r *http.Request, id auth.Identity) {
	body, ok := h.server.readBody(w, r)
	if !ok {
		return
	}
	var m message
	if r.Method == http.MethodPost {
		var err error
		if m, err = peek(body); err != nil {
			writeError(w, http.StatusBadRequest, nil, jsonrpc.CodeParseError, err.Error())
			return
		}
		if n := batchSize(body); n > maxBatch {
			writeError(w, http.StatusBadRequest, nil, jsonrpc.CodeInvalidRequest,
				fmt.Sprintf("the batch has %d messages, and may have %d: send the rest in another", n, maxBatch))
			return
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	out := &errorWriter{ResponseWriter: w, id: m.id()}
	w = out
	var env envelope
	if r.Method == http.MethodPost {
		var err error
		if env, err = readEnvelope(body); err != nil {
			writeError(w, http.StatusBadRequest, nil, jsonrpc.CodeInvalidRequest, err.Error())
			return
		}
		m.Method = env.method
		counted, end, err := h.server.ledgers.begin(r, id.Principal, env, body)
		if err != nil {
			tooMuch(w, m.id(), err)
			return
		}
		defer end()
		r = counted
	}
	if m.Method == "subscriptions/listen" {
		// The request lasts until the client disconnects or the server shuts
		// down.
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		hold, err := holdNow(h.server.shares.listeners, id.Principal, cancel)
		if err != nil {
			tooManySessions(w, m.id())
			return
		}
		defer hold.Release()
		defer context.AfterFunc(h.server.closing, cancel)()
		r = r.WithContext(ctx)
	} else if r.Method == http.MethodPost {
		defer h.server.enter()()
	}
	if isModern(r, m) {
		// The SDK checks this header only for its own methods.
		if task.IsMethod(m.Method) && r.Header.Get("Mcp-Name") != m.Params.TaskID {
			writeError(w, http.StatusBadRequest, m.id(), mcp.CodeHeaderMismatch, "the Mcp-Name header is not params.taskId")
			return
		}
		h.modern.ServeHTTP(w, r)
		return
	}
	var ses *session
	if name := r.Header.Get(sessionHeader); name != "" {
		var ok bool
		if ses, ok = h.server.sessions.named(name, id); !ok {
			http.Error(w, "session not found: initialize another", http.StatusNotFound)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), sessionKey{}, ses))
	} else if r.Method == http.MethodPost {
		var err error
		if ses, err = h.server.sessions.begin(r.Context(), id); err != nil {
			tooManySessions(w, m.id())
			return
		}
		// The client may use the session as soon as it has the header, so bind it
		// before the header is sent.
		out.before = sync.OnceFunc(func() { h.server.bindStreamable(ses, w.Header().Get(sessionHeader)) })
		defer out.before()
		r = r.WithContext(context.WithValue(r.Context(), sessionKey{}, ses))
	}
	if r.Method == http.MethodDelete {
		// The SDK waits for a session's calls before it ends the session, so
		// cancel them first.
		h.server.endSession(r.Header.Get(sessionHeader), id)
	}
	if ses != nil && env.notes > 0 {
		// They are queued when their request has ended.
		l, _ := r.Context().Value(requestKey{}).(*ledger)
		l.enter()
		n := ses.addNote(r.Header.Get(requestHeader), env.notes, l.leave)
		defer func() {
			if out.status != 0 {
				ses.dropNote(n) // the SDK refused the body
			}
		}()
	}
	h.legacy.ServeHTTP(w, r)
}

func tooManySessions(w http.ResponseWriter, id json.RawMessage) {
	w.Header().Set("Retry-After", strconv.Itoa(int(retryAfter.Seconds())))
	writeError(w, http.StatusServiceUnavailable, id, jsonrpc.CodeInternalError, "too many sessions are open on this server")
}

// tooMuch refuses a request because its principal has used up its share.
func tooMuch(w http.ResponseWriter, id json.RawMessage, err error) {
	w.Header().Set("Retry-After", strconv.Itoa(max(1, int(sandbox.RetryAfterOf(err).Seconds()))))
	writeError(w, http.StatusServiceUnavailable, id, jsonrpc.CodeInternalError, err.Error())
}

// readBody reads a body of at most MaxMessageBytes. If that fails, it sends the
// error answer and returns false.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	body, ok := s.readWhole(w, r)
	if ok && countValues(body) > maxValues {
		writeError(w, http.StatusBadRequest, nil, jsonrpc.CodeInvalidRequest,
			fmt.Sprintf("the body has more than %d JSON values: send large data as text", maxValues))
		return nil, false
	}
	return body, ok
}

func (s *Server) readWhole(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	// Package httpserver has already read most bodies into memory.
	if b, ok := r.Body.(interface{ Whole() []byte }); ok && int64(len(b.Whole())) <= s.opts.MaxMessageBytes {
		return b.Whole(), true
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.opts.MaxMessageBytes))
	if err == nil {
		return body, true
	}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		writeError(w, http.StatusRequestEntityTooLarge, nil, jsonrpc.CodeInvalidRequest,
			fmt.Sprintf("the message is larger than %d bytes, the most this server takes", tooLarge.Limit))
	} else {
		writeError(w, http.StatusBadRequest, nil, jsonrpc.CodeInvalidRequest, "the body ended early")
	}
	return nil, false
}

// A message holds the fields of a JSON-RPC message that the dispatch needs.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Meta   map[string]json.RawMessage `json:"_meta"`
		TaskID string                     `json:"taskId"`
	} `json:"params"`
}

// id returns the message's id if it is a string or a number, which an answer may
// repeat; otherwise nil.
func (m message) id() json.RawMessage {
	if len(m.ID) > 0 && (m.ID[0] == '"' || m.ID[0] == '-' || m.ID[0] >= '0' && m.ID[0] <= '9') {
		return m.ID
	}
	return nil
}

// peek decodes the fields of a body that the dispatch needs. It accepts any valid
// JSON: the handler that gets the body refuses other errors.
func peek(body []byte) (message, error) {
	var m message
	if !json.Valid(body) {
		return m, errors.New("the body is not JSON")
	}
	if err := json.Unmarshal(body, &m); err != nil {
		return message{}, nil //nolint:nilerr // batches and odd shapes are the handlers' to refuse
	}
	return m, nil
}

// maxBatch bounds the messages in one request. The SDK handles all of them
// concurrently, and they count as one request.
const maxBatch = 32

// Bounds of a message. Each value of its JSON takes valueCost bytes of memory once it
// is decoded, whatever its length.
const (
	maxValues = 100_000
	valueCost = 80
)

// messageCost returns the memory that the messages of a body take, in bytes.
func messageCost(body []byte) int { return len(body) + countValues(body)*valueCost }

// countValues returns how many values a JSON text has, or a few more.
func countValues(text []byte) (n int) {
	inString := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case !inString && (c == ',' || c == '[' || c == '{'):
			n++
		}
	}
	return n
}

// batchSize returns the number of messages in a batch, and 0 for a body that is
// no batch.
func batchSize(body []byte) int {
	if body = bytes.TrimLeft(body, " \t\r\n"); len(body) == 0 || body[0] != '[' {
		return 0
	}
	var batch []json.RawMessage
	if json.Unmarshal(body, &batch) != nil {
		return 0 // the handler refuses it
	}
	return len(batch)
}

// isModern reports whether a request belongs to the stateless era, which begins
// with version 2026-07-28. An initialize request does not, unless it has metadata
// that only that era has. Then the modern handler refuses it.
func isModern(r *http.Request, m message) bool {
	if r.Method != http.MethodPost || r.Header.Get(sessionHeader) != "" {
		return false
	}
	if _, ok := m.Params.Meta[mcp.MetaKeyProtocolVersion]; ok {
		return true
	}
	if m.Method == "initialize" {
		return false
	}
	return m.Method == "server/discover" || r.Header.Get(versionHeader) >= firstModern
}

// identify gives the SDK the caller's identity, so that only the client that
// opened a session can use it. It removes the token and cookies, because handlers
// of tools can read a request's headers.
func identify(next http.Handler) http.Handler {
	verify := func(ctx context.Context, _ string, _ *http.Request) (*sdkauth.TokenInfo, error) {
		id, ok := auth.FromContext(ctx)
		if !ok {
			return nil, sdkauth.ErrInvalidToken
		}
		return &sdkauth.TokenInfo{UserID: id.Key()}, nil
	}
	known := sdkauth.RequireBearerToken(verify, &sdkauth.RequireBearerTokenOptions{AllowMissingExpiration: true})(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r2 := r.Clone(r.Context())
		r2.Header.Set("Authorization", "Bearer verified")
		r2.Header.Del("Cookie")
		known.ServeHTTP(w, r2)
	})
}

// errorMessage returns a JSON-RPC error message.
func errorMessage(id json.RawMessage, code int64, text string) []byte {
	if id == nil {
		id = json.RawMessage("null")
	}
	// json.Marshal cannot fail for a string: it replaces invalid UTF-8.
	quoted, _ := json.Marshal(text)
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s}}`, id, code, quoted)
}

// writeError answers with a JSON-RPC error.
func writeError(w http.ResponseWriter, status int, id json.RawMessage, code int64, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Del("Content-Length")
	w.WriteHeader(status)
	w.Write(errorMessage(id, code, text))
}

// An errorWriter turns the plain-text errors of the SDK's handlers into JSON-RPC
// errors, the only form that clients can read.
type errorWriter struct {
	http.ResponseWriter
	id     json.RawMessage
	before func() // called before anything is written, possibly several times; may be nil
	always int    // status code of all JSON-RPC errors, if not 0
	status int    // status code of a plain-text error
	done   bool
}

// WriteHeader delays the header of a plain-text error until its text is written.
func (w *errorWriter) WriteHeader(status int) {
	w.begin()
	if status >= 400 && strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
		w.status = status
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *errorWriter) Write(b []byte) (int, error) {
	w.begin()
	if w.status == 0 {
		return w.ResponseWriter.Write(b)
	}
	if !w.done {
		w.done = true
		text := strings.TrimSpace(string(b))
		code := int64(jsonrpc.CodeInvalidRequest)
		switch {
		case w.status == http.StatusNotFound:
			code = codeSessionEnd
		case strings.HasPrefix(text, "JSON RPC not handled"):
			code = jsonrpc.CodeMethodNotFound
		}
		w.Header().Del("X-Content-Type-Options")
		writeError(w.ResponseWriter, cmp.Or(w.always, w.status), w.id, code, text)
	}
	return len(b), nil
}

func (w *errorWriter) begin() {
	if w.before != nil {
		w.before()
	}
}

// Unwrap gives http.ResponseController access to the connection.
func (w *errorWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush implements [http.Flusher], with which the SDK streams.
func (w *errorWriter) Flush() {
	w.begin()
	if w.status == 0 {
		// Ignore the error: if the connection failed, the next write reports it.
		_ = http.NewResponseController(w.ResponseWriter).Flush()
	}
}
