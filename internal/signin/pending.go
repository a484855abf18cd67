package signin

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"sync"
	"time"
)

// A pending is a bounded set of secrets that wait for a client, with a value each.
// It keeps only the hash of a secret. Each value has an owner: a person, or the
// address of a stranger. The oldest value makes room: of the same owner if that has
// maxOfOwner, or of the owner with the most values. The zero value is empty.
type pending[T interface{ ends() time.Time }] struct {
	mu     sync.Mutex
	set    map[[32]byte]*entry[T]
	owners map[string]int // number of values
	count  uint64         // of all values ever
}

type entry[T any] struct {
	value T
	owner string
	order uint64
}

// newSecret returns 256 random bits as text.
func newSecret() string {
	b := make([]byte, 32)
	rand.Read(b)
	return base64.RawURLEncoding.EncodeToString(b)
}

// put adds a value.
func (p *pending[T]) put(secret, owner string, v T, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.set == nil {
		p.set, p.owners = map[[32]byte]*entry[T]{}, map[string]int{}
	}
	if p.owners[owner] >= maxOfOwner {
		p.removeOldest(owner)
	}
	if len(p.set) >= maxPending {
		for key, e := range p.set {
			if !now.Before(e.value.ends()) {
				p.remove(key)
			}
		}
	}
	if len(p.set) >= maxPending {
		most := ""
		for o, n := range p.owners {
			if n > p.owners[most] {
				most = o
			}
		}
		p.removeOldest(most)
	}
	p.count++
	p.owners[owner]++
	p.set[sha256.Sum256([]byte(secret))] = &entry[T]{v, owner, p.count}
}

func (p *pending[T]) removeOldest(owner string) {
	var (
		oldest [32]byte
		order  uint64
	)
	for key, e := range p.set {
		if e.owner == owner && (order == 0 || e.order < order) {
			oldest, order = key, e.order
		}
	}
	p.remove(oldest)
}

func (p *pending[T]) remove(key [32]byte) {
	e := p.set[key]
	if e == nil {
		return
	}
	delete(p.set, key)
	if p.owners[e.owner]--; p.owners[e.owner] == 0 {
		delete(p.owners, e.owner)
	}
}

// has reports whether a secret is in the set.
func (p *pending[T]) has(secret string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.set[sha256.Sum256([]byte(secret))] != nil
}

// use calls f with the value of a secret, while no other call uses the set. It
// does not call f if there is no such value or it has ended. It removes the value
// if f returns false.
func (p *pending[T]) use(secret string, now time.Time, f func(T) (keep bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := sha256.Sum256([]byte(secret))
	e := p.set[key]
	if e == nil {
		return
	}
	if !now.Before(e.value.ends()) || !f(e.value) {
		p.remove(key)
	}
}

// find calls f with each value that has not ended, until f returns true.
func (p *pending[T]) find(now time.Time, f func(T) (found bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.set {
		if now.Before(e.value.ends()) && f(e.value) {
			return
		}
	}
}
