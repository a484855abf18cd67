package httpserver

import (
	"cmp"
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// These are the limits of the pools that front doors divide between principals,
// other than the bytes of bodies.
const (
	// maxRequests bounds the active requests. Long-lasting requests count as
	// streams instead.
	maxRequests = 1024
	maxStreams  = 4096
	// maxConnections bounds the connections of principals. maxNewcomers bounds
	// the connections whose principal is not yet known, and maxUnknown the active
	// requests on those.
	maxConnections = 8192
	maxNewcomers   = 2048
	maxUnknown     = 4096
	// shareWait is how long a request waits for its principal's share.
	shareWait = ioTimeout
	// quietStream is the time without a byte after which a stream counts as idle.
	quietStream = time.Minute
)

// Shares are the resource pools of all front doors of a process, divided between
// principals.
type Shares struct {
	bodies, requests, streams, connections, newcomers, unknown *fair.Pool
}

// NewShares returns shares with maxBodies bytes for request bodies. Zero is
// [DefaultMaxBodies].
func NewShares(maxBodies int64) *Shares {
	maxBodies = cmp.Or(maxBodies, DefaultMaxBodies)
	return &Shares{
		bodies: fair.New(fair.Options{
			Name: "bytes of request bodies", Total: maxBodies, Small: smallBody, Reserve: maxBodies / 8, Format: sandbox.FormatBytes,
		}),
		requests:    fair.New(fair.Options{Name: "requests under way", Total: maxRequests, MaxWaiting: maxRequests}),
		streams:     fair.New(fair.Options{Name: "streams", Total: maxStreams}),
		connections: fair.New(fair.Options{Name: "connections", Total: maxConnections}),
		newcomers:   fair.New(fair.Options{Name: "connections of unknown clients", Total: maxNewcomers}),
		unknown:     fair.New(fair.Options{Name: "requests of unknown clients", Total: maxUnknown}),
	}
}

// Stats returns one function for each pool, which returns the pool's current
// figures.
func (s *Shares) Stats() []func() fair.Stats {
	return []func() fair.Stats{s.bodies.Stats, s.requests.Stats, s.streams.Stats, s.connections.Stats, s.newcomers.Stats, s.unknown.Stats}
}

// fullFor converts the error of a pool that refused a request. If the principal
// holds nothing, the server is full; otherwise the principal has exceeded its
// share.
func fullFor(p *fair.Pool, r *http.Request, err error) error {
	id, _ := auth.FromContext(r.Context())
	if p.Held(id.Principal) > 0 {
		return err
	}
	return sandbox.WithRetryAfter(sandbox.Errorf(sandbox.Unavailable, "the server is overloaded: %s", err), sandbox.RetryAfterOf(err))
}

// admit counts an authenticated request for its principal, as an active request
// or, if it lasts, as a stream. It waits for a unit of the pool.
func (s *Server) admit(next http.Handler, lasts func(*http.Request) bool, refuse refuser) http.Handler {
	next = s.live.serve(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, _ := auth.FromContext(r.Context())
		known(r.Context(), id.Principal)
		if lasts(r) {
			s.stream(w, r, next, false, refuse)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), shareWait)
		hold, err := s.shares.requests.Acquire(ctx, fair.Request{Principal: id.Principal, Units: 1})
		cancel()
		if err != nil {
			refuse(w, r, fullFor(s.shares.requests, r, err))
			return
		}
		defer hold.Release()
		next.ServeHTTP(w, r)
	})
}

// unknownTimeout is the timeout of each write of an answer while the client's
// principal is not known.
const unknownTimeout = 5 * time.Second

// admitUnknown counts a request until its principal is known, or the answer has been
// sent: for the principal of its connection, else for the client's address. A proxy's
// connection has requests of many clients, so a forwarded request counts for its client's
// address. If there are too many, the server cuts off the answer of the oldest. It returns false if
// that is not possible either. One HTTP/2 connection may have a hundred requests,
// each with headers in memory.
func (s *Server) admitUnknown(a *answer, r *http.Request) bool {
	c := connectionOf(r.Context())
	if c == nil {
		return true // a test without a network
	}
	who := c.countsFor()
	if auth.Forwarded(r.Context()) {
		who = fair.AddressOf(r.RemoteAddr)
	}
	hold, err := s.shares.unknown.Try(fair.Request{Principal: who, Units: 1, Evict: func(bool) bool { return a.cutUnknown() }})
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unknown = hold
	return err == nil
}

// known records the principal of a request and its connection.
func known(ctx context.Context, who sandbox.Principal) {
	if e, ok := ctx.Value(entryKey{}).(*entry); ok {
		e.answer.setKnown()
	}
	connectionOf(ctx).ownedBy(who)
}

// never and always are constant answers to whether a request lasts.
func never(*http.Request) bool  { return false }
func always(*http.Request) bool { return true }

// isMCPStream reports whether an MCP request opens a stream. The client may send
// a false Mcp-Method header; such a call is refused later.
func isMCPStream(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Header.Get("Mcp-Method") == "subscriptions/listen"
}

// stream serves a request that lasts. The pool may evict it to make room. It
// evicts an idle stream at any time, unless busy is set. It evicts others only if
// their principal exceeds its share. An evicted stream ends within cutGrace, even
// if its handler ignores its context.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, next http.Handler, busy bool, refuse refuser) {
	id, _ := auth.FromContext(r.Context())
	ctx, end := context.WithCancel(r.Context())
	defer end()
	e, _ := ctx.Value(entryKey{}).(*entry)
	known(ctx, id.Principal)
	use := &streamUse{answer: e.answer}
	use.evicted, use.end = context.WithCancel(context.WithoutCancel(ctx))
	defer use.end()
	use.last.Store(time.Now().UnixNano())
	evict := func(forced bool) bool {
		quiet := time.Since(time.Unix(0, use.last.Load())) >= quietStream
		if !forced && (busy || !quiet) {
			return false
		}
		use.evict()
		end()
		return true
	}
	wait, cancel := context.WithTimeout(ctx, shareWait)
	hold, err := s.shares.streams.Acquire(wait, fair.Request{Principal: id.Principal, Units: 1, Evict: evict})
	cancel()
	if err != nil {
		refuse(w, r, fullFor(s.shares.streams, r, err))
		return
	}
	use.hold = hold
	defer use.finish()
	e.answer.use.Store(use)
	ctx = context.WithValue(ctx, streamKey{}, use)
	r = r.WithContext(ctx)
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &usedBody{r.Body, use}
	}
	next.ServeHTTP(w, r)
	if use.finish() {
		_ = e.answer.FlushError()
		panic(http.ErrAbortHandler) // a truncated answer must not look complete
	}
}

// A streamUse records when a stream was last used, and whether it was evicted.
type streamUse struct {
	answer  *answer
	hold    *fair.Hold
	last    atomic.Int64
	evicted context.Context // ends with the eviction, but not with a disconnect
	end     context.CancelFunc

	mu   sync.Mutex
	over bool // the handler returned
}

type streamKey struct{}

// untilEvicted returns a context that ends when its stream is evicted, but not
// when the client disconnects.
func untilEvicted(ctx context.Context) context.Context {
	if use, ok := ctx.Value(streamKey{}).(*streamUse); ok {
		return use.evicted
	}
	return context.WithoutCancel(ctx)
}

func (u *streamUse) evict() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.over {
		u.answer.evict()
		u.end()
	}
}

// finish releases the stream's unit, and reports whether the stream was evicted
// before. After it, an eviction must not cut the connection, which may serve
// another request.
func (u *streamUse) finish() (evicted bool) {
	u.mu.Lock()
	u.over = true
	u.mu.Unlock()
	u.hold.Release()
	return u.answer.isCut()
}

// touchEvery is the precision of the order in which streams were used.
const touchEvery = time.Second

// touch records that bytes of the stream were transferred. It does nothing on
// nil.
func (u *streamUse) touch() {
	if u == nil {
		return
	}
	now := time.Now().UnixNano()
	if last := u.last.Load(); now-last >= int64(touchEvery) && u.last.CompareAndSwap(last, now) {
		u.hold.Touch()
	}
}
