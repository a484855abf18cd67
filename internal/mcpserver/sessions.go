package mcpserver

import (
	"context"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/fair"
)

// openSessions are the sessions that clients have open over HTTP, on either
// transport.
type openSessions struct {
	pool *fair.Pool

	mu   sync.Mutex
	open map[*session]struct{}
	byID map[string]*session // those of Streamable HTTP
}

// A session is one that a client has open. It ends when its client says so,
// or when another principal needs its place.
type session struct {
	of *openSessions
	id auth.Identity

	// These are guarded by of.mu.
	hold  *fair.Hold
	name  string // by which clients of Streamable HTTP name it, or ""
	calls int    // under way
	end   func() // ends it soon; nil until there is something to end
	ended bool
}

type sessionKey struct{}

// sessionOf returns the session in whose name a context is, or nil.
func sessionOf(ctx context.Context) *session {
	ses, _ := ctx.Value(sessionKey{}).(*session)
	return ses
}

func newOpenSessions(pool *fair.Pool) *openSessions {
	return &openSessions{pool: pool, open: map[*session]struct{}{}, byID: map[string]*session{}}
}

// begin waits for a place for a session. A session without a call under way
// makes room for it, and by force one of a principal that has more than its share.
// The session counts as in use until it is bound.
func (o *openSessions) begin(ctx context.Context, id auth.Identity) (*session, error) {
	ses := &session{of: o, id: id, calls: 1}
	hold, err := acquire(ctx, o.pool, fair.Request{Principal: id.Principal, Units: 1, Evict: ses.evict})
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	ses.hold = hold
	o.open[ses] = struct{}{}
	return ses, nil
}

// bind says what ends a session, and how clients name it.
func (s *session) bind(name string, end func()) {
	s.of.mu.Lock()
	s.calls--
	s.name, s.end = name, end
	if name != "" {
		s.of.byID[name] = s
	}
	ended := s.ended
	s.of.mu.Unlock()
	if ended {
		end()
	}
}

// close ends the session soon.
func (s *session) close() {
	s.of.mu.Lock()
	s.ended = true
	end := s.end
	s.of.mu.Unlock()
	if end != nil {
		end()
	}
}

func (s *session) evict(forced bool) bool {
	s.of.mu.Lock()
	busy := s.calls > 0
	s.of.mu.Unlock()
	if busy && !forced {
		return false
	}
	s.close()
	return true
}

// gone gives the place of a session back that has ended.
func (s *session) gone() {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	delete(s.of.open, s)
	if s.of.byID[s.name] == s {
		delete(s.of.byID, s.name)
	}
	s.hold.Release()
}

// use counts a call in, until done. It does nothing for nil.
func (s *session) use() (done func()) {
	if s == nil {
		return func() {}
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.calls++
	return func() {
		s.of.mu.Lock()
		defer s.of.mu.Unlock()
		s.calls--
	}
}

// named returns the session that a caller names, or nil. A request for it is a
// use of it.
func (o *openSessions) named(name string, id auth.Identity) *session {
	o.mu.Lock()
	defer o.mu.Unlock()
	ses := o.byID[name]
	if ses == nil || ses.id.Key() != id.Key() {
		return nil
	}
	ses.hold.Touch()
	return ses
}

// touch says that a request for the session came.
func (s *session) touch() {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.hold.Touch()
}

// count is how many sessions are open.
func (o *openSessions) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.open)
}

// Busy reports whether any session is open.
func (s *Server) Busy() bool { return s.sessions.count() > 0 }

// End ends the sessions of identities for which gone reports true.
func (s *Server) End(gone func(auth.Identity) bool) {
	var ending []*session
	s.sessions.mu.Lock()
	for ses := range s.sessions.open {
		if gone(ses.id) {
			ending = append(ending, ses)
		}
	}
	s.sessions.mu.Unlock()
	for _, ses := range ending {
		ses.close()
	}
}

// bindStreamable binds a session to that of the SDK which a request has opened,
// if it did.
func (s *Server) bindStreamable(ses *session, name string) {
	var sdk *mcp.ServerSession
	if name != "" {
		for ss := range s.mcp.Sessions() {
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
			// The SDK ends a session when its calls have returned.
			s.endSession(name, ses.id)
			sdk.Close()
		}()
	})
}
