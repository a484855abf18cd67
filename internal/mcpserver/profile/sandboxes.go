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

// Sandboxes finds sandboxes by the names that callers give them, such as a
// session_id. The caller's name is part of the sandbox's name in the engine. So
// it is not lost if this process ends and the sandbox does not.
type Sandboxes struct {
	engine Engine
	prefix string // of the names in the engine

	mu    sync.Mutex
	known map[owned]string // ids, as a cache
	turns map[owned]*turn
}

// owned is a name together with its owner.
type owned struct {
	principal sandbox.Principal
	name      string
}

// A turn is a lock on a name while its sandbox is made or stopped.
type turn struct {
	taken chan struct{}
	users int
}

// NewSandboxes returns the sandboxes of a profile. Unless o.Detached is set, it
// excludes the sandboxes of other processes.
func NewSandboxes(o Options, profile string) *Sandboxes {
	prefix := profile + "/"
	if !o.Detached {
		prefix += strings.ToLower(rand.Text()[:8]) + "/"
	}
	return &Sandboxes{engine: o.Engine, prefix: prefix, known: map[owned]string{}, turns: map[owned]*turn{}}
}

// maxName is the longest name of a caller, in bytes; the engine's name also has
// the prefix.
const maxName = 96

// CheckName checks a caller's name. The error wraps [sandbox.Invalid].
func CheckName(argument, name string) error {
	if name == "" || len(name) > maxName || strings.ContainsFunc(name, unicode.IsControl) {
		return sandbox.Errorf(sandbox.Invalid, "%s: not a name of 1 to %d bytes without control characters", argument, maxName)
	}
	return nil
}

// lock waits for the lock on a name.
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

// Make returns the sandbox with that name. If there is none, it calls make with
// the name for the engine, and reports made.
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

// Find returns the sandbox with that name. If no live sandbox has it, the error
// wraps [sandbox.NotFound].
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

// live returns the ids of the principal's live sandboxes by name.
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

// Names returns the sorted names of a principal's live sandboxes.
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

// Close stops the sandbox with that name and waits until it is removed. If no
// live sandbox has the name, the error wraps [sandbox.NotFound].
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
