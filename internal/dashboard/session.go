package dashboard

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// The bounds of sessions and one-time links.
const (
	// sessionIdle is how long a session lasts without a request, and sessionTTL how
	// long it lasts in all.
	sessionIdle = 12 * time.Hour
	sessionTTL  = 7 * 24 * time.Hour
	// A principal has at most maxOfPrincipal sessions. The oldest ends for a new one.
	maxSessions    = 2000
	maxOfPrincipal = 20
	// linkTTL is how long a one-time link is valid.
	linkTTL  = time.Minute
	maxLinks = 100
)

// A session is a person who signed in, with one browser.
type session struct {
	key [sha256.Size]byte // the hash of the cookie's value
	id  auth.Identity
	// local says that the person signed in from this machine. Other machines cannot
	// use the session: browsers show a host's cookies to servers on all its ports.
	local bool
	begun time.Time
	// ctx ends with the session, and so do its streams and terminals. over ends it.
	ctx  context.Context
	over context.CancelFunc

	used time.Time // guarded by sessions.mu
}

// sessions are the sessions of all people, by the hash of the cookie's value.
type sessions struct {
	now   func() time.Time
	shard sandbox.Shard

	mu  sync.Mutex
	set map[[sha256.Size]byte]*session
}

func newSessions(now func() time.Time, shard sandbox.Shard) *sessions {
	return &sessions{now: now, shard: shard, set: map[[sha256.Size]byte]*session{}}
}

// newSecret returns a random text of 256 bits.
func newSecret() string {
	var b [32]byte
	rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// begin makes a session, and returns the value of its cookie.
func (l *sessions) begin(id auth.Identity, local bool) (secret string) {
	secret = l.shard.Mark(newSecret())
	now := l.now()
	ctx, over := context.WithCancel(context.Background())
	s := &session{key: sha256.Sum256([]byte(secret)), id: id, local: local, begun: now, used: now, ctx: ctx, over: over}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweep(now)
	var own []*session
	for _, other := range l.set {
		if other.id.Principal == id.Principal {
			own = append(own, other)
		}
	}
	if len(own) >= maxOfPrincipal {
		l.drop(oldest(own))
	} else if len(l.set) >= maxSessions {
		var all []*session
		for _, other := range l.set {
			all = append(all, other)
		}
		l.drop(oldest(all))
	}
	l.set[s.key] = s
	return secret
}

// oldest returns the session that was used least recently.
func oldest(list []*session) *session {
	return slices.MinFunc(list, func(a, b *session) int { return a.used.Compare(b.used) })
}

// sweep removes the sessions that are over. The caller holds mu.
func (l *sessions) sweep(now time.Time) {
	for _, s := range l.set {
		if s.isOver(now) {
			l.drop(s)
		}
	}
}

// drop removes a session, and ends its streams and terminals. The caller holds mu.
func (l *sessions) drop(s *session) {
	delete(l.set, s.key)
	s.over()
}

func (s *session) isOver(now time.Time) bool {
	return now.Sub(s.used) >= sessionIdle || now.Sub(s.begun) >= sessionTTL || !s.id.Expires.IsZero() && !now.Before(s.id.Expires)
}

// find returns the session of a cookie's value. Only a client on this machine finds a
// session that began here.
func (l *sessions) find(secret string, local bool) (*session, bool) {
	now := l.now()
	key := sha256.Sum256([]byte(secret))
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.set[key]
	if s == nil || s.local && !local {
		return nil, false
	}
	if s.isOver(now) {
		l.drop(s)
		return nil, false
	}
	s.used = now
	return s, true
}

func (l *sessions) end(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(s)
}

type sessionKey struct{}

func sessionOf(ctx context.Context) (*session, bool) {
	s, ok := ctx.Value(sessionKey{}).(*session)
	return s, ok
}

// isLocal reports whether a request came from this machine, and not through a proxy here.
func isLocal(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	return err == nil && sandbox.IsLoopback(host) && !auth.Forwarded(r.Context())
}

// The rate of attempts to sign in from one address, and the number of addresses that
// are counted one by one. Beyond it, all are forgotten.
const (
	attemptEvery = time.Second
	attemptBurst = 20
	maxAddresses = 10_000
)

// attempts bounds the attempts to sign in.
type attempts struct {
	mu  sync.Mutex
	set map[sandbox.Principal]*rate.Limiter
}

func newAttempts() *attempts { return &attempts{set: map[sandbox.Principal]*rate.Limiter{}} }

// allow reports whether a client may try to sign in.
func (a *attempts) allow(r *http.Request) bool {
	from := fair.AddressOf(r.RemoteAddr)
	a.mu.Lock()
	defer a.mu.Unlock()
	limit := a.set[from]
	if limit == nil {
		if len(a.set) >= maxAddresses {
			clear(a.set)
		}
		limit = rate.NewLimiter(rate.Every(attemptEvery), attemptBurst)
		a.set[from] = limit
	}
	return limit.Allow()
}
