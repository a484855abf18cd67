package httpserver

import (
	"context"
	"io"
	"net/http"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/auth"
)

// live holds the active requests that were authenticated by a token or a link.
type live struct {
	mu       sync.Mutex
	requests map[*liveRequest]struct{}
}

// A liveRequest is an active request.
type liveRequest struct {
	id  auth.Identity
	end context.CancelFunc
}

// serve wraps next, so that [Server.End] can cancel its requests.
func (l *live) serve(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, end := context.WithCancel(r.Context())
		defer end()
		if use, ok := ctx.Value(streamKey{}).(*streamUse); ok {
			defer context.AfterFunc(ctx, use.closeHijacked)()
		}
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

// closeHijacked closes the stream's connection if it was hijacked. The end of the
// context does not interrupt a write to a client that does not read.
func (u *streamUse) closeHijacked() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.answer.mu.Lock()
	defer u.answer.mu.Unlock()
	if !u.over && u.answer.hijacked != nil {
		u.answer.hijacked.Close()
	}
}

// count returns the number of active requests.
func (l *live) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.requests)
}

// End cancels the active requests and streams of all identities for which gone
// returns true.
func (s *Server) End(gone func(auth.Identity) bool) {
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	for q := range s.live.requests {
		if gone(q.id) {
			q.end()
		}
	}
}

// Busy reports whether a request that was authenticated by a token or a link is
// active.
func (s *Server) Busy() bool { return s.live.count() > 0 }

// A usedBody is the body of a stream. Reading it marks the stream as used.
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
