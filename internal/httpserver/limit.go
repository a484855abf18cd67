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

// limits bounds how often each principal asks.
type limits struct {
	perSecond rate.Limit
	burst     int

	mu      sync.Mutex
	buckets map[sandbox.Principal]*rate.Limiter
	swept   time.Time
}

// sweepEvery is how often principals that ask no more are forgotten.
const sweepEvery = 10 * time.Minute

func newLimits(perSecond float64) *limits {
	return &limits{
		perSecond: rate.Limit(perSecond),
		burst:     max(1, int(2*perSecond)),
		buckets:   map[sandbox.Principal]*rate.Limiter{},
	}
}

// wait says how long p has to wait before it may ask; zero is not at all.
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

// limit refuses, by refuse, who asks too often.
func (l *limits) limit(next http.Handler, refuse refuser) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, _ := auth.FromContext(r.Context())
		if d := l.wait(id.Principal, time.Now()); d > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(d.Seconds())))))
			refuse(w, r, sandbox.Errorf(sandbox.Exhausted, "too many requests"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Bounds on what is read of a body that is refused.
const (
	drainBytes = 32 << 20
	drainTime  = 2 * time.Second
)

// drain takes in what a client is still sending of a body that was refused, up
// to a bound. A connection that is closed with unread data is reset, and the
// client may then never see why it was refused.
func drain(w http.ResponseWriter, body io.Reader) {
	rc := http.NewResponseController(w)
	if rc.Flush() != nil || rc.SetReadDeadline(time.Now().Add(drainTime)) != nil {
		return
	}
	// The client may go away or go on too long; either way it is done with.
	_, _ = io.CopyN(io.Discard, body, drainBytes)
}
