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

// Totals of what the front doors share between principals, beside the bytes of
// bodies.
const (
	// maxRequests is how many requests may be under way. Those that last are
	// counted as streams.
	maxRequests = 1024
	maxStreams  = 4096
	// maxConnections is how many connections principals may have open, and
	// maxNewcomers how many may be open on which no request has shown yet whose
	// they are. maxUnknown is how many requests may be under way on those.
	maxConnections = 8192
	maxNewcomers   = 2048
	maxUnknown     = 4096
	// shareWait is how long a request waits for its principal's share.
	shareWait = ioTimeout
	// quietStream is the time without a byte after which a stream counts as not
	// in use.
	quietStream = time.Minute
)

// Shares are what all front doors of a process have together, divided between
// principals.
type Shares struct {
	bodies, requests, streams, connections, newcomers, unknown *fair.Pool
}

// NewShares returns shares with so many bytes for bodies of requests; zero is
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

// Stats returns what tells the figures of each resource.
func (s *Shares) Stats() []func() fair.Stats {
	return []func() fair.Stats{s.bodies.Stats, s.requests.Stats, s.streams.Stats, s.connections.Stats, s.newcomers.Stats, s.unknown.Stats}
}

// fullFor is the error for a request that a pool refused: a principal that has
// nothing of it finds the server full, another is over its share.
func fullFor(p *fair.Pool, r *http.Request, err error) error {
	id, _ := auth.FromContext(r.Context())
	if p.Held(id.Principal) > 0 {
		return err
	}
	return sandbox.WithRetryAfter(sandbox.Errorf(sandbox.Unavailable, "the server handles as much as it can: %s", err), sandbox.RetryAfterOf(err))
}

// admit counts a request, whose sender is known, against its principal's share
// of the requests under way, or of the streams if it lasts. It waits for a place.
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

// unknownTimeout is how long each write of an answer may take as long as it is not
// known whom it is for.
const unknownTimeout = 5 * time.Second

// admitUnknown counts a request by the address of its client until the client is
// known, or the answer has left. It reports false if there are too many. On HTTP/2
// one connection may bring hundreds, each with headers in memory.
func (s *Server) admitUnknown(a *answer, r *http.Request) bool {
	if connectionOf(r.Context()).isKnown() {
		return true
	}
	hold, err := s.shares.unknown.Try(fair.Request{Principal: fair.AddressOf(r.RemoteAddr), Units: 1})
	a.unknown = hold
	return err == nil
}

// known notes whom a request is for, and its connection.
func known(ctx context.Context, who sandbox.Principal) {
	if e, ok := ctx.Value(entryKey{}).(*entry); ok {
		e.answer.patience = ioTimeout
		e.answer.unknown.Release()
	}
	connectionOf(ctx).ownedBy(who)
}

// never and always say whether requests last.
func never(*http.Request) bool  { return false }
func always(*http.Request) bool { return true }

// isMCPStream reports whether a request for MCP is one for a stream. The header
// of the method need not be true: a call under a false one is refused later.
func isMCPStream(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Header.Get("Mcp-Method") == "subscriptions/listen"
}

// stream serves a request that lasts. The server ends it when others need its
// place: at once if it is quiet, unless it is busy for as long as it is there,
// and else if its principal has more than its share. An evicted stream ends
// whether its handler looks at its context or not, within cutGrace.
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
		panic(http.ErrAbortHandler) // an answer that was cut off must not look whole
	}
}

// A streamUse is when a stream was last used, and its end by eviction.
type streamUse struct {
	answer  *answer
	hold    *fair.Hold
	last    atomic.Int64
	evicted context.Context // ends with the eviction, and not when the client goes
	end     context.CancelFunc

	mu   sync.Mutex
	over bool // the handler returned
}

type streamKey struct{}

// untilEvicted returns a context that the client's going away does not end, while
// the eviction of its stream does.
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

// finish gives the stream's place back, and reports whether it was evicted before.
// From then on the connection is not to be cut off: it may serve another request.
func (u *streamUse) finish() (evicted bool) {
	u.mu.Lock()
	u.over = true
	u.mu.Unlock()
	u.hold.Release()
	return u.answer.isCut()
}

// touchEvery is how exact the order is in which streams were used.
const touchEvery = time.Second

// touch says that bytes of the stream passed. It does nothing without a stream.
func (u *streamUse) touch() {
	if u == nil {
		return
	}
	now := time.Now().UnixNano()
	if last := u.last.Load(); now-last >= int64(touchEvery) && u.last.CompareAndSwap(last, now) {
		u.hold.Touch()
	}
}
