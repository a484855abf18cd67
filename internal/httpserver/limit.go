package httpserver

import (
	"context"
	"io"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/usage"
)

// limits are the rate limits of requests. Each principal has that of the configuration,
// and the limits that an administrator set for it or for its groups. The members of a
// group share the limit of the group.
type limits struct {
	perSecond float64
	set       Rates // nil: none are set

	mu      sync.Mutex
	buckets map[bucket]*rate.Limiter
	known   map[sandbox.Principal]knownRates
	swept   time.Time
}

// Rates returns the limits of requests that an administrator set for a principal, and for
// its groups.
type Rates func(context.Context, sandbox.Principal) ([]usage.Rate, error)

// A bucket is that of the configuration for a principal, or of a limit that was set for
// a principal or a group.
type bucket struct {
	kind bucketKind
	name string
}

type bucketKind byte

const (
	configured bucketKind = iota
	ofPrincipal
	ofGroup
)

// knownRates are rates that were read, and are read again after some time.
type knownRates struct {
	rates []usage.Rate
	until time.Time
}

const (
	// sweepEvery is how often the limits of inactive principals are deleted.
	sweepEvery = 10 * time.Minute
	// ratesFor is how long rates are not read again.
	ratesFor = time.Second
)

func newLimits(perSecond float64, set Rates) *limits {
	return &limits{perSecond: perSecond, set: set, buckets: map[bucket]*rate.Limiter{}, known: map[sandbox.Principal]knownRates{}}
}

// wait returns how long p must wait until its next request, and why; zero is no wait. The
// error is that of reading the rates.
func (l *limits) wait(ctx context.Context, p sandbox.Principal, now time.Time) (d time.Duration, why string, err error) {
	rates, err := l.ratesOf(ctx, p, now)
	if err != nil {
		return 0, "", err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweepLocked(now)
	taken := []*rate.Reservation{}
	take := func(b bucket, perSecond float64, reason string) {
		r := l.bucketLocked(b, perSecond, now).ReserveN(now, 1)
		taken = append(taken, r)
		if after := r.DelayFrom(now); after > d {
			d, why = after, reason
		}
	}
	take(bucket{configured, string(p)}, l.perSecond, "too many requests")
	for _, r := range rates {
		b := bucket{ofPrincipal, string(p)}
		if r.Group != "" {
			b = bucket{ofGroup, r.Group}
		}
		take(b, float64(r.PerSecond), "too many requests: "+r.String())
	}
	if d > 0 { // a refused request counts for no bucket
		for _, r := range taken {
			r.CancelAt(now)
		}
	}
	return min(d, longestWait), why, nil
}

// longestWait is after what time a client may try again whose limit is zero.
const longestWait = time.Minute

// bucketLocked returns a bucket with that rate, and a burst of twice as many requests.
func (l *limits) bucketLocked(b bucket, perSecond float64, now time.Time) *rate.Limiter {
	burst := max(1, int(2*perSecond))
	if perSecond == 0 {
		burst = 0
	}
	lim := l.buckets[b]
	if lim == nil {
		lim = rate.NewLimiter(rate.Limit(perSecond), burst)
		l.buckets[b] = lim
	}
	if lim.Limit() != rate.Limit(perSecond) {
		lim.SetLimitAt(now, rate.Limit(perSecond))
		lim.SetBurstAt(now, burst)
	}
	return lim
}

// sweepLocked forgets the principals and groups without recent requests.
func (l *limits) sweepLocked(now time.Time) {
	if now.Sub(l.swept) <= sweepEvery {
		return
	}
	for b, lim := range l.buckets {
		if lim.TokensAt(now) >= float64(lim.Burst()) {
			delete(l.buckets, b)
		}
	}
	for p, k := range l.known {
		if now.After(k.until) {
			delete(l.known, p)
		}
	}
	l.swept = now
}

// ratesOf returns the rates that are set, which may be a second old. A visitor without a
// token has none: visitors would share the limit of each principal.
func (l *limits) ratesOf(ctx context.Context, p sandbox.Principal, now time.Time) ([]usage.Rate, error) {
	if l.set == nil || p == "" {
		return nil, nil
	}
	l.mu.Lock()
	k, ok := l.known[p]
	l.mu.Unlock()
	if ok && now.Before(k.until) {
		return k.rates, nil
	}
	rates, err := l.set(ctx, p)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known[p] = knownRates{rates, now.Add(ratesFor)}
	return rates, nil
}

// limit answers requests above the rate limits with refuse.
func (l *limits) limit(next http.Handler, refuse refuser) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, _ := auth.FromContext(r.Context())
		d, why, err := l.wait(r.Context(), id.Principal, time.Now())
		if err != nil {
			refuse(w, r, err)
			return
		}
		if d > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(d.Seconds())))))
			refuse(w, r, sandbox.WithRetryAfter(sandbox.Errorf(sandbox.Exhausted, "%s", why), d))
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
