package pool

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/glovebox-dev/glovebox/internal/driver"
)

// shapeOf returns the shape of a spec, nil if the pool keeps none like it. p.mu
// is held, or nobody else has p.
func (p *Pool) shapeOf(spec *driver.Spec) *shape {
	like := *spec
	like.ID, like.Streams = "", 0
	if like.Workspace != "" {
		return nil
	}
	// They bound the sandbox's life, which the engine keeps.
	alike := like
	alike.Limits.Idle, alike.Limits.Lifetime = 0, 0
	key, err := json.Marshal(alike)
	if err != nil {
		return nil
	}
	// What a secret is does not show in its JSON, and makes a box another one.
	sum := sha256.New()
	for _, secret := range like.Secrets {
		fmt.Fprintf(sum, "%q", secret.Value.Reveal())
	}
	key = sum.Sum(key)
	s := p.shapes[string(key)]
	if s == nil {
		if len(p.shapes) >= maxShapes && !p.forgetOne() {
			return nil
		}
		s = &shape{spec: like}
		p.shapes[string(key)] = s
	}
	return s
}

// forgetOne forgets the shape that was asked for longest ago, of those that
// have no box and get none.
func (p *Pool) forgetOne() bool {
	oldest := ""
	for key, s := range p.shapes {
		if !s.ahead && !s.busy && len(s.ready) == 0 && (oldest == "" || s.used.Before(p.shapes[oldest].used)) {
			oldest = key
		}
	}
	delete(p.shapes, oldest)
	return oldest != ""
}
