package transport

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"

	sdkauth "github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/ledger"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/task"
)

// A streamable serves Streamable HTTP in all versions of the protocol.
type streamable struct {
	opts     Options
	calls    *calls
	sessions *openSessions

	modern, legacy http.Handler
	single         http.Handler // handles each request on its own and answers in JSON
}

func newStreamable(o Options, c *calls, sessions *openSessions) *streamable {
	get := func(*http.Request) *mcp.Server { return o.MCP }
	return &streamable{
		opts: o, calls: c, sessions: sessions,
		// A stateless handler of the SDK serves only the versions from 2026-07-28
		// on. A handler with sessions serves only the earlier versions.
		modern: identify(mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{
			Stateless:                    true,
			Logger:                       o.Log,
			MaxRequestBodyBytes:          -1, // bounded by readBody
			PropagateRequestCancellation: true,
			DisableLocalhostProtection:   true, // the caller's guard is stricter
		})),
		single: identify(mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{
			Stateless:                    true,
			JSONResponse:                 true,
			Logger:                       o.Log,
			MaxRequestBodyBytes:          -1,
			PropagateRequestCancellation: true,
			DisableLocalhostProtection:   true,
		})),
		legacy: identify(mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{
			Logger:                     o.Log,
			EventStore:                 newEventStore(o.Shares.Events),
			SessionTimeout:             o.SessionTimeout,
			MaxRequestBodyBytes:        -1,
			DisableLocalhostProtection: true,
		})),
	}
}

func (h *streamable) serve(w http.ResponseWriter, r *http.Request, id auth.Identity) {
	body, ok := readBody(w, r, h.opts.MaxMessageBytes)
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
		counted, end, err := h.calls.ledgers.Begin(r, id.Principal, max(1, env.calls+env.notes), messageCost(body))
		if err != nil {
			tooMuch(w, m.id(), err)
			return
		}
		defer end()
		r = counted
		r.Header.Del(callHeader)
	}
	if m.Method == "subscriptions/listen" {
		// The request lasts until the client disconnects or the server shuts
		// down.
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		hold, err := ledger.HoldNow(h.opts.Shares.Listeners, id.Principal, cancel)
		if err != nil {
			tooManySessions(w, m.id())
			return
		}
		defer hold.Release()
		defer context.AfterFunc(h.calls.closing, cancel)()
		r = r.WithContext(ctx)
	} else if r.Method == http.MethodPost {
		defer h.calls.enter()()
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
	name := r.Header.Get(sessionHeader)
	nameCall(r.Header, "http "+name, env.id)
	if name != "" {
		var ok bool
		if ses, ok = h.sessions.named(name, id); !ok {
			http.Error(w, "session not found: initialize another", http.StatusNotFound)
			return
		}
		if env.cancels != nil && ses != nil {
			h.calls.cancel("http "+name, *env.cancels)
		}
		r = r.WithContext(context.WithValue(r.Context(), sessionKey{}, ses))
	} else if r.Method == http.MethodPost {
		var err error
		if ses, err = h.sessions.begin(r.Context(), id); err != nil {
			tooManySessions(w, m.id())
			return
		}
		// The client may use the session as soon as it has the header, so bind it
		// before the header is sent.
		out.before = sync.OnceFunc(func() { h.bind(ses, w.Header().Get(sessionHeader)) })
		defer out.before()
		r = r.WithContext(context.WithValue(r.Context(), sessionKey{}, ses))
	}
	if r.Method == http.MethodDelete {
		// The SDK waits for a session's calls before it ends the session, so
		// cancel them first.
		h.calls.endSession(r.Header.Get(sessionHeader), id)
	}
	if ses != nil && env.notes > 0 {
		// They are queued when their request has ended.
		n := ses.notes.add(r.Header.Get(ledger.RequestHeader), env.notes, ledger.Use(r))
		defer func() {
			if out.status != 0 {
				ses.notes.drop(n) // the SDK refused the body
			}
		}()
	}
	h.legacy.ServeHTTP(w, r)
}

// bind binds a session to the SDK's session with that id. If the
// request opened none, it gives the session's place back.
func (h *streamable) bind(ses *session, name string) {
	var sdk *mcp.ServerSession
	if name != "" {
		for ss := range h.opts.MCP.Sessions() {
			if ss.ID() == name {
				sdk = ss
			}
		}
	}
	if sdk == nil {
		ses.gone()
		return
	}
	go func() {
		sdk.Wait()
		ses.gone()
	}()
	ses.bind(name, func() {
		go func() {
			// The SDK waits for a session's calls before it ends the session, so
			// cancel them first.
			h.calls.endSession(name, ses.id)
			sdk.Close()
		}()
	})
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
