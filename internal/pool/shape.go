package pool

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// shapeOfLocked returns the shape of a spec, or nil if the pool keeps no box of this
// shape. The caller holds p.mu or has exclusive access to p.
func (p *Pool) shapeOfLocked(spec *driver.Spec) *shape {
	like := *spec
	like.ID, like.Streams = "", 0
	if like.Workspace != "" {
		return nil
	}
	// The values of a caller's header rules are for one sandbox: the pool must not
	// keep them, and no other request needs such a box.
	if slices.ContainsFunc(like.Secrets, func(s sandbox.Secret) bool { return s.Always }) {
		return nil
	}
	// The engine enforces Idle and Lifetime, so they do not change the shape.
	alike := like
	alike.Limits.Idle, alike.Limits.Lifetime = 0, 0
	key, err := json.Marshal(alike)
	if err != nil {
		return nil
	}
	// The values of secrets are not in the JSON, but are part of the shape.
	sum := sha256.New()
	for _, secret := range like.Secrets {
		fmt.Fprintf(sum, "%q", secret.Value.Reveal())
	}
	key = sum.Sum(key)
	s := p.shapes[string(key)]
	if s == nil {
		if len(p.shapes) >= maxShapes && !p.forgetOneLocked() {
			return nil
		}
		s = &shape{spec: like}
		p.shapes[string(key)] = s
	}
	return s
}

// forgetOneLocked forgets the shape with the oldest request. It keeps shapes with
// boxes, shapes for which a box is being made, and shapes of Keep. It returns
// false if none is left to forget.
func (p *Pool) forgetOneLocked() bool {
	oldest := ""
	for key, s := range p.shapes {
		if !s.ahead && !s.busy && len(s.ready) == 0 && (oldest == "" || s.used.Before(p.shapes[oldest].used)) {
			oldest = key
		}
	}
	if oldest == "" {
		return false
	}
	p.dropPrototypeLocked(p.shapes[oldest])
	delete(p.shapes, oldest)
	return true
}

// Keep makes the pool keep a box of that shape even without requests.
func (p *Pool) Keep(spec *driver.Spec) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.shapeOfLocked(spec); s != nil {
		s.ahead, s.target = true, max(1, s.target)
		p.signal()
	}
}
