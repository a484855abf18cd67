package transport

import (
	"context"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/ledger"
)

// openSessions are the open sessions of clients over HTTP, on either transport.
type openSessions struct {
	pool *fair.Pool

	mu   sync.Mutex
	open map[*session]struct{}
	byID map[string]*session // only sessions of Streamable HTTP
}

// A session is an open session of a client. It ends when its client ends it, or
// when another principal needs its place.
type session struct {
	of *openSessions
	id auth.Identity

	// of.mu guards the following fields.
	hold  *fair.Hold
	name  string // the session id on Streamable HTTP, otherwise ""
	calls int    // in progress
	end   func() // ends the session without waiting; nil until bind
	ended bool

	notes notes
}

type sessionKey struct{}

// sessionOf returns the session of a context, or nil.
func sessionOf(ctx context.Context) *session {
	ses, _ := ctx.Value(sessionKey{}).(*session)
	return ses
}

func newOpenSessions(pool *fair.Pool) *openSessions {
	return &openSessions{pool: pool, open: map[*session]struct{}{}, byID: map[string]*session{}}
}

// begin waits for a place for a new session. To make room, the pool evicts
// sessions without a call in progress. It evicts busy sessions only of principals
// that exceed their share. The new session counts as in use until bind.
func (o *openSessions) begin(ctx context.Context, id auth.Identity) (*session, error) {
	ses := &session{of: o, id: id, calls: 1}
	hold, err := ledger.Acquire(ctx, o.pool, fair.Request{Principal: id.Principal, Units: 1, Evict: ses.evict})
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	ses.hold = hold
	o.open[ses] = struct{}{}
	return ses, nil
}

// bind sets the function that ends a session, and the session's id.
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

// close ends the session without waiting for its end.
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

// gone gives back the place of a session that has ended.
func (s *session) gone() {
	s.of.mu.Lock()
	delete(s.of.open, s)
	if s.of.byID[s.name] == s {
		delete(s.of.byID, s.name)
	}
	s.hold.Release()
	s.of.mu.Unlock()
	s.notes.end()
}

// use marks a call as in progress until done is called. A nil session is allowed.
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

// named returns the session with that id, or nil if it belongs to another
// identity. It marks the session as recently used. ok is false if there is no such
// session or its end has begun: the SDK still accepts requests for a moment then,
// and does not answer them.
func (o *openSessions) named(name string, id auth.Identity) (_ *session, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ses := o.byID[name]
	switch {
	case ses == nil || ses.ended:
		return nil, false
	case ses.id.Key() != id.Key():
		return nil, true
	}
	ses.hold.Touch()
	return ses, true
}

// touch marks the session as recently used.
func (s *session) touch() {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.hold.Touch()
}

// count returns the number of open sessions.
func (o *openSessions) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.open)
}

// end ends the sessions of all identities for which gone returns true. It does not
// wait for their end.
func (o *openSessions) end(gone func(auth.Identity) bool) {
	var ending []*session
	o.mu.Lock()
	for ses := range o.open {
		if gone(ses.id) {
			ending = append(ending, ses)
		}
	}
	o.mu.Unlock()
	for _, ses := range ending {
		ses.close()
	}
}

// countNotes reports each notification that was handled to its session.
func countNotes(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		if extra := req.GetExtra(); extra != nil && strings.HasPrefix(method, "notifications/") {
			if ses := sessionOf(ctx); ses != nil {
				ses.notes.handled(extra.Header.Get(ledger.RequestHeader))
			}
		}
		return res, err
	}
}
