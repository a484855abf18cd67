package httpserver

import (
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
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

// bound limits the size of a request's body, of all bodies that are handled at
// one time, and the time a body may take to come.
func (s *Server) bound(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > s.opts.MaxBodyBytes {
			refuse(w, http.StatusRequestEntityTooLarge, "invalid",
				"the body is larger than "+sandbox.FormatBytes(s.opts.MaxBodyBytes)+", the most this server takes", "")
			drain(w, r.Body)
			return
		}
		if r.Body != nil && r.Body != http.NoBody {
			size := r.ContentLength
			if size < 0 {
				size = s.opts.MaxBodyBytes
			}
			defer s.bodies.Add(-size)
			if s.bodies.Add(size) > s.opts.MaxBodies {
				w.Header().Set("Retry-After", "1")
				writeError(w, sandbox.Errorf(sandbox.Unavailable, "the server handles as much as it can"))
				return
			}
			whole := r.Body
			r.Body = http.MaxBytesReader(w, r.Body, s.opts.MaxBodyBytes)
			rc := http.NewResponseController(w)
			// What has no deadlines is no connection, and has no slow bodies.
			if rc.SetReadDeadline(time.Now().Add(ioTimeout)) == nil {
				body := &timedBody{ReadCloser: r.Body, rc: rc}
				r.Body = body
				defer func() {
					if body.tooLarge.Load() {
						drain(w, whole)
					}
				}()
			}
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

// A timedBody takes the deadline off the connection when the body is read:
// net/http watches the connection from then on for the client going away.
type timedBody struct {
	io.ReadCloser
	rc   *http.ResponseController
	once sync.Once
	// tooLarge says that reading ended at the bound on its size.
	tooLarge atomic.Bool
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.done()
	}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		b.tooLarge.Store(true)
	}
	return n, err
}

func (b *timedBody) Close() error {
	b.done()
	return b.ReadCloser.Close()
}

func (b *timedBody) done() {
	b.once.Do(func() {
		// It could be set, so it can be taken off, unless the connection is
		// gone.
		_ = b.rc.SetReadDeadline(time.Time{})
	})
}
