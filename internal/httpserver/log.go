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

// An entry is what becomes known of a request on its way.
type entry struct {
	principal sandbox.Principal
	path      string // what to log for the path, if not itself
	port      bool   // it is for a port of a sandbox
	answer    *answer
}

type entryKey struct{}

// noteIdentity tells the log who asked.
func noteIdentity(ctx context.Context, id auth.Identity) {
	if e, ok := ctx.Value(entryKey{}).(*entry); ok {
		e.principal = id.Principal
	}
}

// notePath tells the log what to have for the request's path.
func notePath(ctx context.Context, path string) {
	if e, ok := ctx.Value(entryKey{}).(*entry); ok {
		e.path = path
	}
}

// notePort tells it that the request is for a port of a sandbox.
func notePort(ctx context.Context) {
	if e, ok := ctx.Value(entryKey{}).(*entry); ok {
		e.port = true
	}
}

// logRequests logs and counts each request when it is answered: never a header,
// a query or a body, any of which may hold a secret.
func (s *Server) logRequests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		defer connectionOf(r.Context()).begin()()
		a := &answer{ResponseWriter: w, rc: http.NewResponseController(w), patience: unknownTimeout}
		e := &entry{answer: a}
		defer func() {
			if a.unknown != nil && a.patience == unknownTimeout {
				_ = a.FlushError() // while the request counts
			}
			a.unknown.Release()
			a.hurry() // what is still buffered leaves after the handler
			took := time.Since(began)
			s.opts.Metrics.Requested(s.counted(e, r), r.Method, cmp.Or(a.status, http.StatusOK), took)
			level := slog.LevelInfo
			if r.URL.Path == "/healthz" {
				level = slog.LevelDebug
			}
			s.opts.Log.Log(r.Context(), level, "request", "method", r.Method, "path", cmp.Or(e.path, loggedPath(r.URL.Path)), "status", a.status,
				"bytes", a.bytes, "duration", took, "principal", e.principal, "remote", r.RemoteAddr)
		}()
		if !s.admitUnknown(a, r) {
			// Without a body: a client need not read for it to leave.
			w.Header().Set("Retry-After", "1")
			a.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		ctx := context.WithValue(r.Context(), entryKey{}, e)
		if parent := r.Header.Values("Traceparent"); len(parent) == 1 {
			ctx = trace.Continue(ctx, parent[0])
		}
		next.ServeHTTP(a, r.WithContext(ctx))
	})
}

// counted returns what a request counts as: never what a client chose.
func (s *Server) counted(e *entry, r *http.Request) string {
	if e.port {
		return "/ports"
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch path := "/" + first; path {
	case "/mcp", "/sse", "/files", "/workspaces", "/healthz", metricsPath, e2bPath:
		return path
	}
	if s.opts.MCP == nil && s.opts.E2B != nil {
		return e2bPath
	}
	return "other"
}
