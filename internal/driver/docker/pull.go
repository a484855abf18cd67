package docker

import (
	"context"
	"slices"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/container/registries"
	"github.com/glovebox-dev/glovebox/internal/driver/docker/dockerapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A pull is the running pull of one image, shared by all callers that wait
// for it.
type pull struct {
	done   chan struct{}
	cancel context.CancelFunc
	err    error // set before done is closed

	mu      sync.Mutex
	waiting int
	tell    []func(sandbox.ImageProgress)
}

// pulls are the running pulls of a container engine. Their methods are safe for
// concurrent use.
type pulls struct {
	registries registries.Rules

	mu      sync.Mutex
	running map[string]*pull // by the name of the image; guarded by mu
}

// pull has the container engine pull an image. Callers that request the same image
// share one pull. The pull is cancelled when no caller waits any more.
func (s *pulls) pull(ctx context.Context, e *dockerapi.Engine, name string, order driver.ImagePull) error {
	registry, err := registryOf(name)
	if err != nil {
		return err
	}
	if err := s.registries.Check(ctx, name, registry, order.Anywhere); err != nil {
		return err
	}
	s.mu.Lock()
	p := s.running[name]
	if p == nil {
		work, cancel := context.WithCancel(context.WithoutCancel(ctx))
		p = &pull{done: make(chan struct{}), cancel: cancel}
		s.running[name] = p
		go func() {
			defer cancel()
			p.err = e.Pull(work, name, registry, p.progress)
			s.mu.Lock()
			if s.running[name] == p {
				delete(s.running, name)
			}
			s.mu.Unlock()
			close(p.done)
		}()
	}
	p.mu.Lock()
	p.waiting++
	if order.Progress != nil {
		p.tell = append(p.tell, order.Progress)
	}
	p.mu.Unlock()
	s.mu.Unlock()
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		// With s.mu held, so that no caller joins a pull that is cancelled.
		s.mu.Lock()
		defer s.mu.Unlock()
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.waiting--; p.waiting == 0 {
			p.cancel()
			if s.running[name] == p {
				delete(s.running, name)
			}
		}
		return ctx.Err()
	}
}

func (p *pull) progress(now sandbox.ImageProgress) {
	p.mu.Lock()
	tell := slices.Clone(p.tell)
	p.mu.Unlock()
	for _, f := range tell {
		f(now)
	}
}
