package httpserver

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/trace"
)

// An entry collects facts about a request for the log.
type entry struct {
	principal sandbox.Principal
	path      string // path for the log, if not the request's own
	port      bool   // the request is for a port of a sandbox
	answer    *answer
}

type entryKey struct{}

// noteIdentity records the caller for the log.
func noteIdentity(ctx context.Context, id auth.Identity) {
	if e, ok := ctx.Value(entryKey{}).(*entry); ok {
		e.principal = id.Principal
	}
}

// notePath records the path for the log.
func notePath(ctx context.Context, path string) {
	if e, ok := ctx.Value(entryKey{}).(*entry); ok {
		e.path = path
	}
}

// notePort records that the request is for a port of a sandbox.
func notePort(ctx context.Context) {
	if e, ok := ctx.Value(entryKey{}).(*entry); ok {
		e.port = true
	}
}

// logRequests logs and counts each request after its answer. It never logs
// headers, queries or bodies, because they may contain secrets.
func (s *Server) logRequests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = proxyList(s.opts.TrustedProxies).fromClient(r)
		began := time.Now()
		defer connectionOf(r.Context()).begin()()
		a := &answer{ResponseWriter: w, rc: http.NewResponseController(w), patience: unknownTimeout}
		e := &entry{answer: a}
		ctx := trace.Watch(context.WithValue(r.Context(), entryKey{}, e))
		defer func() {
			cut := a.finish(r)
			took := time.Since(began)
			s.opts.Metrics.Requested(ctx, s.counted(e, r), r.Method, cmp.Or(a.status, http.StatusOK), took)
			level := slog.LevelInfo
			if r.URL.Path == "/healthz" {
				level = slog.LevelDebug
			}
			s.opts.Log.Log(r.Context(), level, "request", "method", r.Method, "path", cmp.Or(e.path, loggedPath(r.URL.Path)), "status", cmp.Or(a.status, http.StatusOK),
				"bytes", a.bytes, "duration", took, "principal", e.principal, "remote", r.RemoteAddr)
			if cut {
				panic(http.ErrAbortHandler) // the connection must not serve another request
			}
		}()
		if !s.admitUnknown(a, r) {
			// Send no body, so that the answer does not wait for the client to
			// read.
			w.Header().Set("Retry-After", "1")
			a.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if parent := r.Header.Values("Traceparent"); len(parent) == 1 {
			ctx = trace.Continue(ctx, parent[0])
		}
		next.ServeHTTP(a, r.WithContext(ctx))
	})
}

// counted returns the path label of a request for the metrics. It never contains
// text from the client.
func (s *Server) counted(e *entry, r *http.Request) string {
	if e.port {
		return "/ports"
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch path := "/" + first; path {
	case "/mcp", "/sse", "/files", "/workspaces", "/healthz", "/ui", metricsPath, e2bPath:
		return path
	}
	if s.opts.MCP == nil && s.opts.E2B != nil {
		return e2bPath
	}
	return "other"
}
