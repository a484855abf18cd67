package dashboard

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A oneTime keeps values for ttl, each for one use, by the hash of a random text, which
// tells the server's shard. If max values wait, the oldest makes room for a new one.
type oneTime[T any] struct {
	now   func() time.Time
	shard sandbox.Shard
	ttl   time.Duration
	max   int

	mu  sync.Mutex
	set map[[sha256.Size]byte]expiring[T]
}

type expiring[T any] struct {
	value   T
	expires time.Time
}

func newOneTime[T any](now func() time.Time, shard sandbox.Shard, ttl time.Duration, most int) *oneTime[T] {
	return &oneTime[T]{now: now, shard: shard, ttl: ttl, max: most, set: map[[sha256.Size]byte]expiring[T]{}}
}

// put keeps a value, and returns the text that gives access to it.
func (l *oneTime[T]) put(value T) (secret string, expires time.Time) {
	secret, expires = l.shard.Mark(newSecret()), l.now().Add(l.ttl)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweep()
	if len(l.set) >= l.max {
		var first [sha256.Size]byte
		var ends time.Time
		for key, old := range l.set {
			if ends.IsZero() || old.expires.Before(ends) {
				first, ends = key, old.expires
			}
		}
		delete(l.set, first)
	}
	l.set[sha256.Sum256([]byte(secret))] = expiring[T]{value, expires}
	return secret, expires
}

// take returns the value of a text, which is then no longer valid.
func (l *oneTime[T]) take(secret string) (value T, ok bool) {
	key := sha256.Sum256([]byte(secret))
	l.mu.Lock()
	defer l.mu.Unlock()
	found, ok := l.set[key]
	delete(l.set, key)
	if !ok || !l.now().Before(found.expires) {
		return value, false
	}
	return found.value, true
}

// waiting returns the number of values that were not used yet.
func (l *oneTime[T]) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweep()
	return len(l.set)
}

// sweep removes the values that are over. The caller holds mu.
func (l *oneTime[T]) sweep() {
	now := l.now()
	for key, old := range l.set {
		if !now.Before(old.expires) {
			delete(l.set, key)
		}
	}
}
