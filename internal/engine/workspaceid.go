package engine

import (
	"cmp"
	"context"
	"errors"

	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
	"github.com/glovebox-dev/glovebox/internal/workspace"
)

// namedWorkspace returns the record of p's workspace of that name. The error is
// of kind NotFound if there is none.
func (e *Engine) namedWorkspace(ctx context.Context, p sandbox.Principal, name string) (store.Workspace, error) {
	if id, ok := e.opts.Workspaces.Conversation(p, name); ok {
		return e.store.Workspace(ctx, string(id))
	}
	return e.store.NamedWorkspace(ctx, p, name)
}

// useWorkspace records a use of p's workspace of that name, and returns its
// record. If make is set, it creates a missing workspace.
func (e *Engine) useWorkspace(ctx context.Context, p sandbox.Principal, name string, make bool) (store.Workspace, error) {
	conversation, fixed := e.opts.Workspaces.Conversation(p, name)
	for {
		rec, err := e.namedWorkspace(ctx, p, name)
		switch {
		case errors.Is(err, sandbox.NotFound) && !make:
			return store.Workspace{}, request.NoWorkspace(name)
		case errors.Is(err, sandbox.NotFound):
			id := conversation
			if !fixed {
				id = workspace.NewID()
			}
			rec = store.Workspace{ID: string(id), Handle: id.Handle(), Principal: p}
			rec.Name = name
		case err != nil:
			return store.Workspace{}, err
		}
		rec.Used = e.now()
		// The directory is made inside the transaction, while no process can
		// remove it.
		err = e.store.UseWorkspace(ctx, rec, cmp.Or(e.opts.MaxWorkspaces, maxWorkspaces), func() error {
			_, err := e.opts.Workspaces.Make(workspace.ID(rec.ID))
			return err
		})
		// On a conflict, another process has just made a workspace of that
		// name: retry.
		if fixed || !errors.Is(err, sandbox.Conflict) {
			return rec, err
		}
	}
}

// MakeWorkspace creates p's workspace of that name unless it exists. It returns
// the URL below which its files are served, or "" if no server serves them. The
// URL is a secret: it gives read access to the workspace.
func (e *Engine) MakeWorkspace(ctx context.Context, p sandbox.Principal, name string) (string, error) {
	const op = "make workspace"
	m, err := e.mount(ctx, p, name, true)
	if err != nil {
		return "", sandbox.Wrap(err, op, "")
	}
	defer m.release()
	return e.filesAt(m.rec.ID), nil
}
