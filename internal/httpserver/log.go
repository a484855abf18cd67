package httpserver

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"math"
	"net/http"
	"strings"
	"sync/atomic"
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
	use       atomic.Pointer[streamUse]
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
		e := &entry{}
		a := &answer{ResponseWriter: w, rc: http.NewResponseController(w), entry: e}
		defer func() {
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

// An answer counts what is answered, and gives a client that reads too slowly
// up: each write has to be done in ioTimeout.
type answer struct {
	http.ResponseWriter
	rc     *http.ResponseController
	entry  *entry
	status int
	bytes  int64
}

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(b []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	defer a.hurry()()
	n, err := a.ResponseWriter.Write(b)
	a.bytes += int64(n)
	return n, err
}

// ReadFrom lets the system copy a file to the connection, a piece at a time.
func (a *answer) ReadFrom(r io.Reader) (n int64, err error) {
	to, ok := a.ResponseWriter.(io.ReaderFrom)
	if !ok {
		return io.Copy(struct{ io.Writer }{a}, r)
	}
	if a.status == 0 {
		a.status = http.StatusOK
	}
	// Only a reader that is limited once is known for a file.
	whole, ok := r.(*io.LimitedReader)
	if !ok {
		whole = &io.LimitedReader{R: r, N: math.MaxInt64}
	}
	for {
		piece := &io.LimitedReader{R: whole.R, N: min(whole.N, answerPiece)}
		asked := piece.N
		done := a.hurry()
		m, err := to.ReadFrom(piece)
		done()
		n += m
		a.bytes += m
		whole.N -= m
		if err != nil || m < asked || whole.N <= 0 {
			return n, err
		}
	}
}

// answerPiece is how much of a file has to leave in ioTimeout.
const answerPiece = 1 << 20

// hurry sets the deadline of a write, and returns what takes it off again: on
// HTTP/2 a deadline that passes ends the stream even if nothing is written.
// Where there are no deadlines there is no connection to wait for.
func (a *answer) hurry() (done func()) {
	a.entry.use.Load().touch()
	_ = a.rc.SetWriteDeadline(time.Now().Add(ioTimeout))
	return func() { _ = a.rc.SetWriteDeadline(time.Time{}) }
}

// FlushError is what http.ResponseController flushes with.
func (a *answer) FlushError() error {
	defer a.hurry()()
	return a.rc.Flush()
}

// Flush is FlushError for those who do not look at the error.
func (a *answer) Flush() { _ = a.FlushError() }

// Unwrap lets http.ResponseController reach the connection.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
