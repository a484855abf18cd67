package httpserver

import (
	"io"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// limits is the rate limit of requests, by principal.
type limits struct {
	perSecond rate.Limit
	burst     int

	mu      sync.Mutex
	buckets map[sandbox.Principal]*rate.Limiter
	swept   time.Time
}

// sweepEvery is how often the limits of inactive principals are deleted.
const sweepEvery = 10 * time.Minute

func newLimits(perSecond float64) *limits {
	return &limits{
		perSecond: rate.Limit(perSecond),
		burst:     max(1, int(2*perSecond)),
		buckets:   map[sandbox.Principal]*rate.Limiter{},
	}
}

// wait returns how long p must wait until its next request; zero is no wait.
func (l *limits) wait(p sandbox.Principal, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.swept) > sweepEvery {
		for q, b := range l.buckets {
			if b.TokensAt(now) >= float64(l.burst) {
				delete(l.buckets, q)
			}
		}
		l.swept = now
	}
	b := l.buckets[p]
	if b == nil {
		b = rate.NewLimiter(l.perSecond, l.burst)
		l.buckets[p] = b
	}
	if b.AllowN(now, 1) {
		return 0
	}
	return time.Duration((1 - b.TokensAt(now)) / float64(l.perSecond) * float64(time.Second))
}

// limit answers requests above the rate limit with refuse.
func (l *limits) limit(next http.Handler, refuse refuser) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, _ := auth.FromContext(r.Context())
		if d := l.wait(id.Principal, time.Now()); d > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(d.Seconds())))))
			refuse(w, r, sandbox.WithRetryAfter(sandbox.Errorf(sandbox.Exhausted, "too many requests"), d))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// These bound the reading of a refused body.
const (
	drainBytes = 32 << 20
	drainTime  = 2 * time.Second
)

// drain reads the rest of a refused body, up to a limit. If the server closes a
// connection with unread data, TCP resets it, and the client may lose the error.
func drain(w http.ResponseWriter, body io.Reader) {
	rc := http.NewResponseController(w)
	if rc.Flush() != nil || rc.SetReadDeadline(time.Now().Add(drainTime)) != nil {
		return
	}
	// Ignore the error: the connection is closed in any case.
	_, _ = io.CopyN(io.Discard, body, drainBytes)
}
