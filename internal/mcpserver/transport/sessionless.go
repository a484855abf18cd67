package transport

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/ledger"
)

// streamBeat is the interval of the keep-alive comments on an idle stream.
const streamBeat = 25 * time.Second

// serveSessionless serves clients that do not support sessions. Each POST is one
// message, and the answer is always JSON, whatever the client accepts. A GET
// opens a stream for messages from the server; the server sends none.
func (h *streamable) serveSessionless(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodPost:
		h.postSessionless(w, r)
	case http.MethodGet:
		h.streamNothing(w, r)
	default:
		w.Header().Set("Allow", "GET, POST")
		writeError(w, http.StatusMethodNotAllowed, nil, jsonrpc.CodeInvalidRequest, "POST sends a message, GET opens a stream")
	}
}

func (h *streamable) postSessionless(w http.ResponseWriter, r *http.Request) {
	body, ok := readBody(w, r, h.opts.MaxMessageBytes)
	if !ok {
		return
	}
	m, err := peek(body)
	if err != nil {
		writeError(w, http.StatusOK, nil, jsonrpc.CodeParseError, err.Error())
		return
	}
	defer h.calls.enter()()
	id, _ := auth.FromContext(r.Context())
	env, err := readEnvelope(body)
	if err != nil {
		writeError(w, http.StatusOK, nil, jsonrpc.CodeInvalidRequest, err.Error())
		return
	}
	m.Method = env.method
	r, end, err := h.calls.ledgers.Begin(r, id.Principal, max(1, env.calls+env.notes), messageCost(body))
	if err != nil {
		tooMuch(w, m.id(), err)
		return
	}
	defer end()
	r.Header.Del(callHeader)
	r.Body = io.NopCloser(bytes.NewReader(body))
	if isModern(r, m) {
		h.modern.ServeHTTP(&errorWriter{ResponseWriter: w, id: m.id()}, r)
		return
	}
	// Clients of this kind send neither header.
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	// JSON-RPC errors have status 200: the error is in the message, and HTTP
	// itself did not fail.
	h.single.ServeHTTP(&errorWriter{ResponseWriter: w, id: m.id(), always: http.StatusOK}, r)
}

// streamNothing keeps a stream open until the client disconnects or the server
// shuts down.
func (h *streamable) streamNothing(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	id, _ := auth.FromContext(ctx)
	hold, err := ledger.HoldNow(h.opts.Shares.Listeners, id.Principal, cancel)
	if err != nil {
		tooManySessions(w, nil)
		return
	}
	defer hold.Release()
	defer context.AfterFunc(h.calls.closing, cancel)()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("X-Accel-Buffering", "no") // proxies must not buffer the stream
	rc := http.NewResponseController(w)
	say := func(comment string) bool {
		_, err := io.WriteString(w, ": "+comment+"\n\n")
		return err == nil && rc.Flush() == nil
	}
	beat := time.NewTicker(streamBeat)
	defer beat.Stop()
	for ok := say("MCP SSE stream connected"); ok; ok = say("still connected") {
		select {
		case <-beat.C:
		case <-ctx.Done():
			return
		}
	}
}
