package mount

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
	"github.com/glovebox-dev/glovebox/internal/workspace"
)

// maxWorkspaces is the number of workspaces of a principal, unless Options sets
// another.
const maxWorkspaces = 1000

// Named returns the record of p's workspace of that name. The error is
// of kind NotFound if there is none.
func (s *Set) Named(ctx context.Context, p sandbox.Principal, name string) (store.Workspace, error) {
	if id, ok := s.opts.Keeper.Conversation(p, name); ok {
		return s.opts.Records.Workspace(ctx, string(id))
	}
	return s.opts.Records.NamedWorkspace(ctx, p, name)
}

// use records a use of p's workspace of that name, and returns its
// record. If make is set, it creates a missing workspace.
func (s *Set) use(ctx context.Context, p sandbox.Principal, name string, make bool) (store.Workspace, error) {
	conversation, fixed := s.opts.Keeper.Conversation(p, name)
	for {
		rec, err := s.Named(ctx, p, name)
		switch {
		case errors.Is(err, sandbox.NotFound) && !make:
			return store.Workspace{}, request.NoWorkspace(name)
		case errors.Is(err, sandbox.NotFound):
			id := conversation
			if !fixed {
				id = workspace.ID(s.opts.Shard.Hex(string(workspace.NewID())))
			}
			rec = store.Workspace{ID: string(id), Handle: s.opts.Shard.Hex(id.Handle()), Principal: p}
			rec.Name = name
		case err != nil:
			return store.Workspace{}, err
		}
		rec.Used = s.opts.Now()
		// The directory is made inside the transaction, while no process can
		// remove it.
		err = s.opts.Records.UseWorkspace(ctx, rec, cmp.Or(s.opts.Max, maxWorkspaces), func() error {
			_, err := s.opts.Keeper.Make(workspace.ID(rec.ID))
			return err
		})
		// On a conflict, another process has just made a workspace of that
		// name: retry.
		if fixed || !errors.Is(err, sandbox.Conflict) {
			return rec, err
		}
	}
}

// Mount returns a workspace of p for use until Release. If make is set, it
// creates a missing workspace.
func (s *Set) Mount(ctx context.Context, p sandbox.Principal, name string, make bool) (*Mount, error) {
	if err := request.CheckPrincipal(p); err != nil {
		return nil, err
	}
	if err := request.CheckWorkspaceName(name); err != nil {
		return nil, err
	}
	if s.opts.Keeper == nil {
		return nil, sandbox.Errorf(sandbox.Unsupported, "workspace: this server keeps none")
	}
	rec, err := s.use(ctx, p, name, make)
	if err != nil {
		return nil, err
	}
	return s.hold(rec, workspace.ID(rec.ID))
}

// hold returns the mount of an existing workspace.
func (s *Set) hold(rec store.Workspace, id workspace.ID) (*Mount, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opts.Closed() {
		return nil, request.Closed()
	}
	if m := s.mounts[id]; m != nil {
		m.users++
		return m, nil
	}
	ws, err := s.opts.Keeper.Open(id)
	if err != nil {
		return nil, err
	}
	m := &Mount{set: s, rec: rec, id: id, ws: ws, users: 1, awake: map[Sandbox]bool{}, boxes: map[Sandbox]bool{}, copies: map[Sandbox]func(){}, runs: map[Run]bool{}}
	s.mounts[id] = m
	return m, nil
}

// ByID returns the workspace with that ID or handle, of any principal, for use
// until Release.
func (s *Set) ByID(ctx context.Context, idOrHandle string) (*Mount, error) {
	if s.opts.Keeper == nil {
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no such workspace")
	}
	rec, err := s.opts.Records.Workspace(ctx, idOrHandle)
	if errors.Is(err, sandbox.NotFound) {
		return s.conversation(ctx, idOrHandle, err)
	}
	if err != nil {
		return nil, err
	}
	return s.hold(rec, workspace.ID(rec.ID))
}

// conversation returns the mount of a conversation's directory by a name
// that has no record. That is its second name, or the name of a directory from
// before Glovebox. If there is none, it returns err.
func (s *Set) conversation(ctx context.Context, name string, err error) (*Mount, error) {
	id, ok := s.opts.Keeper.Find(name)
	if !ok {
		return nil, err
	}
	rec, err := s.opts.Records.Workspace(ctx, string(id))
	if errors.Is(err, sandbox.NotFound) {
		rec, err = store.Workspace{ID: string(id), Handle: id.Handle()}, nil
	}
	if err != nil {
		return nil, err
	}
	return s.hold(rec, id)
}

// Remove removes a workspace that is not in use. If idle is set, it
// also must have been unused for Options.TTL. It reports whether it did.
func (s *Set) Remove(ctx context.Context, rec store.Workspace, idle bool) (bool, error) {
	id := workspace.ID(rec.ID)
	s.mu.Lock()
	used := s.mounts[id] != nil
	s.mu.Unlock()
	if used {
		return false, nil
	}
	var before time.Time
	if idle {
		before = s.opts.Now().Add(-s.opts.TTL)
	}
	purge := func() error { return nil }
	deleted, err := s.opts.Records.DeleteWorkspace(ctx, rec.ID, before, func() (err error) {
		purge, err = s.opts.Keeper.Remove(id)
		return err
	})
	if err != nil || !deleted {
		return false, err
	}
	s.opts.Log.Info("workspace removed", "workspace", rec.Handle, "idle", idle)
	return true, purge()
}

// Sweep removes workspaces that were unused for Options.TTL.
func (s *Set) Sweep(ctx context.Context) error {
	if s.opts.Keeper == nil || s.opts.TTL == 0 {
		return nil
	}
	recs, err := s.opts.Records.IdleWorkspaces(ctx, s.opts.Now().Add(-s.opts.TTL))
	errs := []error{err}
	for _, rec := range recs {
		_, err := s.Remove(ctx, rec, true)
		errs = append(errs, err)
	}
	return sandbox.Wrap(errors.Join(errs...), "sweep workspaces", "")
}
