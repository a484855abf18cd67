package engine

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/engine/excerpt"
	"github.com/glovebox-dev/glovebox/internal/engine/mount"
	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Workspaces returns the workspaces of p, with their usage when they were last
// measured.
func (e *Engine) Workspaces(ctx context.Context, p sandbox.Principal) ([]sandbox.Workspace, error) {
	if err := request.CheckPrincipal(p); err != nil {
		return nil, sandbox.Wrap(err, "list workspaces", "")
	}
	recs, err := e.store.Workspaces(ctx, p)
	if err != nil {
		return nil, err
	}
	list := make([]sandbox.Workspace, 0, len(recs))
	for _, r := range recs {
		r.Quota = e.opts.WorkspaceQuota
		list = append(list, r.Workspace)
	}
	return list, nil
}

// Workspace returns a workspace of p, and measures it first.
func (e *Engine) Workspace(ctx context.Context, p sandbox.Principal, name string) (sandbox.Workspace, error) {
	const op = "measure workspace"
	var w sandbox.Workspace
	err := e.withWorkspace(ctx, p, name, op, func(m *mount.Mount) error {
		if err := m.Measure(ctx); err != nil {
			return err
		}
		rec, err := e.store.Workspace(ctx, m.ID())
		w = rec.Workspace
		w.Quota = e.opts.WorkspaceQuota
		return err
	})
	return w, err
}

// DeleteWorkspace removes a workspace with its contents. The error is of kind
// [sandbox.Conflict] while a sandbox has it, and of kind [sandbox.NotFound] if
// there is none.
func (e *Engine) DeleteWorkspace(ctx context.Context, p sandbox.Principal, name string) error {
	const op = "delete workspace"
	if err := request.CheckPrincipal(p); err != nil {
		return sandbox.Wrap(err, op, "")
	}
	if err := request.CheckWorkspaceName(name); err != nil {
		return sandbox.Wrap(err, op, "")
	}
	if e.opts.Workspaces == nil {
		return sandbox.Wrap(request.NoWorkspace(name), op, "")
	}
	rec, err := e.mounts.Named(ctx, p, name)
	if errors.Is(err, sandbox.NotFound) {
		return sandbox.Wrap(request.NoWorkspace(name), op, "")
	}
	if err != nil {
		return sandbox.Wrap(err, op, "")
	}
	deleted, err := e.mounts.Remove(ctx, rec, false)
	if err == nil && !deleted {
		err = sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "workspace: %s is in use", excerpt.Quote(name)),
			"stop the sandboxes that have it first")
	}
	return sandbox.Wrap(err, op, "")
}

// withWorkspace calls do with the mount of an existing workspace of p.
func (e *Engine) withWorkspace(ctx context.Context, p sandbox.Principal, name, op string, do func(*mount.Mount) error) error {
	m, err := e.mounts.Mount(ctx, p, name, false)
	if err != nil {
		return sandbox.Wrap(err, op, "")
	}
	defer m.Release()
	return sandbox.Wrap(do(m), op, "")
}

// ExportWorkspace writes a workspace to w as a tar archive. A sparse file
// counts with its full size.
func (e *Engine) ExportWorkspace(ctx context.Context, p sandbox.Principal, name string, w io.Writer) error {
	return e.withWorkspace(ctx, p, name, mount.OpExport, func(m *mount.Mount) error { return m.Export(ctx, w) })
}

// ImportWorkspace unpacks a tar archive, which may be compressed by gzip, into
// a workspace of p. It creates a missing workspace. It unpacks all files of the
// archive or none.
func (e *Engine) ImportWorkspace(ctx context.Context, p sandbox.Principal, name string, r io.Reader) error {
	_, _, err := e.WorkspaceOf(ctx, p, name)
	fresh := errors.Is(err, sandbox.NotFound)
	m, err := e.mounts.Mount(ctx, p, name, true)
	if err != nil {
		return sandbox.Wrap(err, mount.OpImport, "")
	}
	err = m.Import(ctx, r)
	m.Release()
	if err != nil && fresh {
		// If another call uses the workspace by now, it stays.
		if _, rerr := e.mounts.Remove(context.WithoutCancel(ctx), m.Record(), false); rerr != nil {
			err = errors.Join(err, rerr)
		}
	}
	return sandbox.Wrap(err, mount.OpImport, "")
}

// An OpenFile is a file of a workspace that is open for reading.
type OpenFile = mount.OpenFile

// WorkspaceOf returns the ID and the handle of a workspace of p, for URLs. The
// error is of kind NotFound if there is none.
func (e *Engine) WorkspaceOf(ctx context.Context, p sandbox.Principal, name string) (id, handle string, err error) {
	if e.opts.Workspaces == nil {
		return "", "", request.NoWorkspace(name)
	}
	if err := request.CheckWorkspaceName(name); err != nil {
		return "", "", err
	}
	rec, err := e.mounts.Named(ctx, p, name)
	if errors.Is(err, sandbox.NotFound) {
		return "", "", request.NoWorkspace(name)
	}
	return rec.ID, rec.Handle, err
}

// ServeFilesAt sets the base URL of the server that serves files of workspaces.
func (e *Engine) ServeFilesAt(base string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fileBase = strings.TrimSuffix(base, "/")
}

// filesAt returns the URL below which the files of a workspace are served, or
// "" if no server serves them.
func (e *Engine) filesAt(id string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fileBase == "" {
		return ""
	}
	return e.fileBase + "/files/" + id
}

// MakeWorkspace creates p's workspace of that name unless it exists. It returns
// the URL below which its files are served, or "" if no server serves them. The
// URL is a secret: it gives read access to the workspace.
func (e *Engine) MakeWorkspace(ctx context.Context, p sandbox.Principal, name string) (string, error) {
	const op = "make workspace"
	m, err := e.mounts.Mount(ctx, p, name, true)
	if err != nil {
		return "", sandbox.Wrap(err, op, "")
	}
	defer m.Release()
	return e.filesAt(m.ID()), nil
}

// WriteWorkspaceFile writes all of r to a file of p's workspace of that name,
// by an atomic rename at the end. It returns the number of bytes, and creates a
// missing workspace.
func (e *Engine) WriteWorkspaceFile(ctx context.Context, p sandbox.Principal, workspace, name string, r io.Reader) (int64, error) {
	const op = "write file"
	m, err := e.mounts.Mount(ctx, p, workspace, true)
	if err != nil {
		return 0, sandbox.Wrap(err, op, "")
	}
	defer m.Release()
	n, err := m.Put(ctx, name, r, -1)
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
