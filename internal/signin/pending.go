package signin

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"sync"
	"time"
)

// A pending is a bounded set of secrets that wait for a client, with a value each.
// It keeps only the hash of a secret. The zero value is empty.
type pending[T interface{ ends() time.Time }] struct {
	mu  sync.Mutex
	set map[[32]byte]T
}

// newSecret returns 256 random bits as text.
func newSecret() string {
	b := make([]byte, 32)
	rand.Read(b)
	return base64.RawURLEncoding.EncodeToString(b)
}

// put adds a value, and reports whether there was room for it. It removes values
// that have ended.
func (p *pending[T]) put(secret string, v T, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.set) >= maxPending {
		for key, old := range p.set {
			if !now.Before(old.ends()) {
				delete(p.set, key)
			}
		}
	}
	if len(p.set) >= maxPending {
		return false
	}
	if p.set == nil {
		p.set = map[[32]byte]T{}
	}
	p.set[sha256.Sum256([]byte(secret))] = v
	return true
}

// use calls f with the value of a secret, while no other call uses the set. It
// does not call f if there is no such value or it has ended. It removes the value
// if f returns false.
func (p *pending[T]) use(secret string, now time.Time, f func(T) (keep bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := sha256.Sum256([]byte(secret))
	v, ok := p.set[key]
	if !ok {
		return
	}
	if !now.Before(v.ends()) || !f(v) {
		delete(p.set, key)
	}
}

// find calls f with each value that has not ended, until f returns true.
func (p *pending[T]) find(now time.Time, f func(T) (found bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, v := range p.set {
		if now.Before(v.ends()) && f(v) {
			return
		}
	}
}
