package profile

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Sandboxes finds the sandbox that a caller goes by a name of its own, such as a
// session_id. The name is part of the sandbox's name in the engine, so nothing
// is lost when this process ends and the sandbox does not.
type Sandboxes struct {
	engine Engine
	prefix string // of the names in the engine

	mu    sync.Mutex
	known map[owned]string // ids, to save looking for them
	turns map[owned]*turn
}

// owned is a name and whose it is.
type owned struct {
	principal sandbox.Principal
	name      string
}

// A turn is taken by whoever makes or ends the sandbox of a name.
type turn struct {
	taken chan struct{}
	users int
}

// NewSandboxes returns the sandboxes of a profile. Unless they are detached,
// those of other processes are not among them.
func NewSandboxes(o Options, profile string) *Sandboxes {
	prefix := profile + "/"
	if !o.Detached {
		prefix += strings.ToLower(rand.Text()[:8]) + "/"
	}
	return &Sandboxes{engine: o.Engine, prefix: prefix, known: map[owned]string{}, turns: map[owned]*turn{}}
}

// maxName is what fits a sandbox's name beside the prefix.
const maxName = 96

// CheckName reports whether a caller's name will do. The error wraps
// [sandbox.Invalid].
func CheckName(argument, name string) error {
	if name == "" || len(name) > maxName || strings.ContainsFunc(name, unicode.IsControl) {
		return sandbox.Errorf(sandbox.Invalid, "%s: not a name of 1 to %d bytes without control characters", argument, maxName)
	}
	return nil
}

// lock waits for the turn of a name.
func (s *Sandboxes) lock(ctx context.Context, o owned) (unlock func(), err error) {
	s.mu.Lock()
	t := s.turns[o]
	if t == nil {
		t = &turn{taken: make(chan struct{}, 1)}
		s.turns[o] = t
	}
	t.users++
	s.mu.Unlock()
	leave := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(s.turns, o)
		}
	}
	select {
	case t.taken <- struct{}{}:
		return func() { <-t.taken; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

// Make returns the sandbox of that name, or makes it with the name that the
// engine is to give it. It reports whether it was made now.
func (s *Sandboxes) Make(ctx context.Context, p sandbox.Principal, name string, make func(engineName string) (sandbox.Sandbox, error)) (id string, made bool, err error) {
	o := owned{p, name}
	unlock, err := s.lock(ctx, o)
	if err != nil {
		return "", false, err
	}
	defer unlock()
	id, err = s.Find(ctx, p, name)
	if err == nil || !errors.Is(err, sandbox.NotFound) {
		return id, false, err
	}
	sb, err := make(s.prefix + name)
	if err != nil {
		return "", false, err
	}
	s.remember(o, sb.ID)
	return sb.ID, true, nil
}

func (s *Sandboxes) remember(o owned, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[o] = id
}

func (s *Sandboxes) forget(o owned) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, o)
}

// Find returns the sandbox of that name. The error wraps [sandbox.NotFound] if
// there is none that lives.
func (s *Sandboxes) Find(ctx context.Context, p sandbox.Principal, name string) (id string, err error) {
	o := owned{p, name}
	s.mu.Lock()
	id, ok := s.known[o]
	s.mu.Unlock()
	if ok {
		sb, err := s.engine.Get(ctx, p, id)
		if err == nil && sb.State != sandbox.Stopped {
			return id, nil
		}
		if err != nil && !errors.Is(err, sandbox.NotFound) {
			return "", err
		}
		s.forget(o)
	}
	live, err := s.live(ctx, p)
	if err != nil {
		return "", err
	}
	if id = live[name]; id == "" {
		return "", sandbox.Errorf(sandbox.NotFound, "there is no sandbox %q", name)
	}
	s.remember(o, id)
	return id, nil
}

// live returns the sandboxes that live, by name.
func (s *Sandboxes) live(ctx context.Context, p sandbox.Principal) (map[string]string, error) {
	all, err := s.engine.List(ctx, p)
	if err != nil {
		return nil, err
	}
	live := map[string]string{}
	for _, sb := range all {
		if name, ok := strings.CutPrefix(sb.Name, s.prefix); ok && sb.State != sandbox.Stopped {
			live[name] = sb.ID
		}
	}
	return live, nil
}

// Names returns the names of a principal's sandboxes that live, sorted.
func (s *Sandboxes) Names(ctx context.Context, p sandbox.Principal) ([]string, error) {
	live, err := s.live(ctx, p)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(live))
	for name := range live {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// Close stops the sandbox of that name, and returns when nothing of it is left.
// The error wraps [sandbox.NotFound] if there is none that lives.
func (s *Sandboxes) Close(ctx context.Context, p sandbox.Principal, name string) error {
	o := owned{p, name}
	unlock, err := s.lock(ctx, o)
	if err != nil {
		return err
	}
	defer unlock()
	id, err := s.Find(ctx, p, name)
	if err != nil {
		return err
	}
	if err := s.engine.Stop(ctx, p, id); err != nil {
		return err
	}
	s.forget(o)
	return nil
}
