package httpserver

import (
	"io"
	"net/http"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
)

// An E2B serves E2B's protocol, whose clients prove who they are in ways of
// their own.
type E2B interface {
	http.Handler
	// Authenticate lets through, with the identity in its context, a request
	// whose sender is known.
	Authenticate(next http.Handler) http.Handler
	// Refuse answers a request with an error.
	Refuse(w http.ResponseWriter, r *http.Request, err error)
	// Streams reports whether the body of a request that came through is
	// passed on as it comes, and is not bounded in memory.
	Streams(r *http.Request) bool
	// Lasts reports whether a request that came through may go on for as long as
	// its client likes.
	Lasts(r *http.Request) bool
}

// A refuser answers a request with an error.
type refuser func(w http.ResponseWriter, r *http.Request, err error)

func writeErrorTo(w http.ResponseWriter, _ *http.Request, err error) { writeError(w, err) }

// noteCaller tells the log who asks.
func noteCaller(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id, ok := auth.FromContext(r.Context()); ok {
			noteIdentity(r.Context(), id)
		}
		next.ServeHTTP(w, r)
	})
}

// boundE2B bounds bodies as bound does, but for those that are passed on as
// they come: these may be long, and come slowly, but not stop.
func (s *Server) boundE2B(next E2B) http.Handler {
	bound := s.bound(next, next.Refuse)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !next.Streams(r) {
			bound.ServeHTTP(w, r)
			return
		}
		if r.Body != nil && r.Body != http.NoBody {
			body := &pacedBody{ReadCloser: r.Body, rc: http.NewResponseController(w)}
			defer body.done()
			r.Body = body
		}
		next.ServeHTTP(w, r)
	})
}

// A pacedBody gives a client up that sends nothing for ioTimeout.
type pacedBody struct {
	io.ReadCloser
	rc *http.ResponseController
}

func (b *pacedBody) Read(p []byte) (int, error) {
	_ = b.rc.SetReadDeadline(time.Now().Add(ioTimeout))
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.done()
	}
	return n, err
}

// done takes the deadline off the connection, which lives on. What has no
// deadlines is no connection.
func (b *pacedBody) done() { _ = b.rc.SetReadDeadline(time.Time{}) }
