package httpserver

import (
	"context"
	"io"
	"net/http"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/auth"
)

// live are the requests under way whose senders are known by a token. Those by a
// link are not among them.
type live struct {
	mu       sync.Mutex
	requests map[*liveRequest]struct{}
}

// A liveRequest is a request under way.
type liveRequest struct {
	id  auth.Identity
	end context.CancelFunc
}

// serve has next serve requests, which [Server.End] may end.
func (l *live) serve(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, end := context.WithCancel(r.Context())
		defer end()
		id, _ := auth.FromContext(ctx)
		q := &liveRequest{id: id, end: end}
		l.mu.Lock()
		if l.requests == nil {
			l.requests = map[*liveRequest]struct{}{}
		}
		l.requests[q] = struct{}{}
		l.mu.Unlock()
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			delete(l.requests, q)
		}()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// count is how many requests are under way.
func (l *live) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.requests)
}

// End ends the requests under way, streams too, of identities for which gone
// reports true.
func (s *Server) End(gone func(auth.Identity) bool) {
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	for q := range s.live.requests {
		if gone(q.id) {
			q.end()
		}
	}
}

// Busy reports whether any request of a known sender is under way.
func (s *Server) Busy() bool { return s.live.count() > 0 }

// A usedBody is the body of a stream, which reading it uses.
type usedBody struct {
	io.ReadCloser
	use *streamUse
}

func (b *usedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.use.touch()
	}
	return n, err
}
