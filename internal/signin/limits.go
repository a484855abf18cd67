package signin

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxLimiters bounds the keys whose requests a limits counts one by one.
const maxLimiters = 10_000

// A limits bounds the rate of requests of each key: the address of a stranger, or a
// grant. When it knows maxLimiters keys, it forgets all of them.
type limits struct {
	every time.Duration
	burst int

	mu  sync.Mutex
	set map[string]*rate.Limiter
}

func newLimits(every time.Duration, burst int) *limits {
	return &limits{every: every, burst: burst, set: map[string]*rate.Limiter{}}
}

// allow reports whether a request of the key may pass.
func (l *limits) allow(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	limit := l.set[key]
	if limit == nil {
		if len(l.set) >= maxLimiters {
			clear(l.set)
		}
		limit = rate.NewLimiter(rate.Every(l.every), l.burst)
		l.set[key] = limit
	}
	return limit.Allow()
}
