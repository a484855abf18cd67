package httpserver

import (
	"io"
	"net/http"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
)

// An E2B serves E2B's protocol, which has its own forms of authentication.
type E2B interface {
	http.Handler
	// Authenticate calls next for requests with valid credentials, with the
	// identity in the context.
	Authenticate(next http.Handler) http.Handler
	// Refuse answers a request with an error.
	Refuse(w http.ResponseWriter, r *http.Request, err error)
	// Streams reports whether the body of an authenticated request is forwarded
	// as it arrives, without a limit in memory.
	Streams(r *http.Request) bool
	// TakesPort reports whether a request for the host name of a port is for this
	// protocol, and not for a link of the server.
	TakesPort(r *http.Request) bool
	// OnPort reports whether an authenticated request is for a program on a port of
	// a sandbox. Strangers may send such requests, so they have a rate limit of
	// their own.
	OnPort(r *http.Request) bool
	// Lasts reports whether an authenticated request may last as long as its
	// client wants.
	Lasts(r *http.Request) bool
}

// A refuser answers a request with an error.
type refuser func(w http.ResponseWriter, r *http.Request, err error)

func writeErrorTo(w http.ResponseWriter, _ *http.Request, err error) { writeError(w, err) }

// limitE2B applies the rate limits of a principal's own requests, and of requests
// for ports of its sandboxes.
func limitE2B(own, ports *limits, e2b E2B, next http.Handler) http.Handler {
	onPort, other := ports.limit(next, e2b.Refuse), own.limit(next, e2b.Refuse)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if e2b.OnPort(r) {
			onPort.ServeHTTP(w, r)
			return
		}
		other.ServeHTTP(w, r)
	})
}

// noteCaller records the caller for the log.
func noteCaller(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id, ok := auth.FromContext(r.Context()); ok {
			noteIdentity(r.Context(), id)
		}
		next.ServeHTTP(w, r)
	})
}

// boundE2B bounds bodies as bound does, except for streamed bodies. These may be
// large and slow, but must not stop.
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

// A pacedBody ends with an error if the client sends nothing for ioTimeout.
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

// done removes the deadline of the connection, which the server may reuse. It
// ignores the error: a ResponseWriter without deadlines has no connection.
func (b *pacedBody) done() { _ = b.rc.SetReadDeadline(time.Time{}) }
