package engine

import (
	"context"
	"errors"
	"io"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// mountConversation returns the mount of a conversation's directory by a name
// that has no record. That is its second name, or the name of a directory from
// before Glovebox. If there is none, it returns err.
func (e *Engine) mountConversation(ctx context.Context, name string, err error) (*mount, error) {
	id, ok := e.opts.Workspaces.Find(name)
	if !ok {
		return nil, err
	}
	rec, err := e.store.Workspace(ctx, string(id))
	if errors.Is(err, sandbox.NotFound) {
		rec, err = store.Workspace{ID: string(id), Handle: id.Handle()}, nil
	}
	if err != nil {
		return nil, err
	}
	return e.hold(rec, id)
}

// WriteWorkspaceFile writes all of r to a file of p's workspace of that name,
// by an atomic rename at the end. It returns the number of bytes, and creates a
// missing workspace.
func (e *Engine) WriteWorkspaceFile(ctx context.Context, p sandbox.Principal, workspace, name string, r io.Reader) (int64, error) {
	const op = "write file"
	m, err := e.mount(ctx, p, workspace, true)
	if err != nil {
		return 0, sandbox.Wrap(err, op, "")
	}
	defer m.release()
	n, err := m.put(ctx, name, r, -1)
	return n, sandbox.Wrap(err, op, "")
}

// WorkspaceURL returns the URL below which the files of p's workspace of that
// name are served, or "" if no server serves them.
func (e *Engine) WorkspaceURL(ctx context.Context, p sandbox.Principal, workspace string) (string, error) {
	id, _, err := e.WorkspaceOf(ctx, p, workspace)
	if err != nil {
		return "", err
	}
	return e.filesAt(id), nil
}
