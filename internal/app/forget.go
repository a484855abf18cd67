package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/glovebox-dev/glovebox/internal/audit"
	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// Held counts the records about a principal by their kind.
type Held = store.Held

// Held counts what the state directory has about a principal.
func (s *System) Held(ctx context.Context, p sandbox.Principal) (Held, error) {
	return s.store.Held(ctx, p)
}

// Forget erases what the state directory has about a principal: its tokens, sandboxes,
// runs with their output, workspaces, usage, limits, memberships and templates. Lines of
// the audit log stay. Each step can be repeated, and the records go last: after a crash,
// another call finishes the work. progress is called for each step.
func (s *System) Forget(ctx context.Context, p sandbox.Principal, progress func(string)) (erased Held, err error) {
	rec := audit.Record{Action: audit.PrincipalForget, Principal: administrator(ctx), Detail: map[string]string{"principal": string(p)}}
	err = s.audit.Do(ctx, rec, func(rec *audit.Record) error {
		erased, err = s.forget(ctx, p, progress)
		var total int64
		for _, n := range erased {
			total += n
		}
		rec.Detail["records"] = fmt.Sprint(total)
		return err
	})
	return erased, err
}

func (s *System) forget(ctx context.Context, p sandbox.Principal, progress func(string)) (Held, error) {
	tokens, err := s.auth.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range tokens {
		if t.Principal != p || !t.Revoked.IsZero() {
			continue
		}
		if _, err := s.auth.Revoke(ctx, t.ID); err != nil {
			return nil, err
		}
		progress("revoked the token " + t.Name)
	}
	served, err := s.store.Served(ctx)
	if err != nil {
		return nil, err
	}
	stop := func() error {
		return s.StopSandboxesOf(ctx, []sandbox.Principal{p}, func(id string) { progress("stopped " + id) })
	}
	first := stop()
	if served { // a request that it had accepted before may still make a sandbox
		select {
		case <-time.After(auth.RevocationEvery + time.Second):
		case <-ctx.Done():
			return nil, errors.Join(first, ctx.Err())
		}
	}
	if err := stop(); err != nil {
		return nil, err
	}
	workspaces, err := s.Engine.Workspaces(ctx, p)
	if err != nil {
		return nil, err
	}
	for _, w := range workspaces {
		if err := s.Engine.DeleteWorkspace(ctx, p, w.Name); err != nil && !errors.Is(err, sandbox.NotFound) {
			return nil, err
		}
		progress("deleted the workspace " + w.Name)
	}
	erased, err := s.store.Erase(ctx, p)
	if err != nil {
		return nil, err
	}
	// The sweep removes the output of runs without a record. Any later one does, too.
	return erased, s.Engine.Sweep(ctx)
}
