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
	"github.com/glovebox-dev/glovebox/internal/workspace"
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
	return e.withWorkspace(ctx, p, name, opExport, func(m *mount.Mount) error { return m.Export(ctx, w) })
}

// ExportArchive is like ExportWorkspace, for the workspace with that handle.
// The caller must have checked the right to it.
func (e *Engine) ExportArchive(ctx context.Context, handle string, w io.Writer) error {
	m, err := e.mounts.ByID(ctx, handle)
	if err != nil {
		return sandbox.Wrap(err, opExport, "")
	}
	defer m.Release()
	return sandbox.Wrap(m.Export(ctx, w), opExport, "")
}

// Names of operations, for errors.
const (
	opExport = "export workspace"
	opImport = "import workspace"
)

// ImportWorkspace unpacks a tar archive, which may be compressed by gzip, into
// a workspace of p. It creates a missing workspace. It unpacks all files of the
// archive or none.
func (e *Engine) ImportWorkspace(ctx context.Context, p sandbox.Principal, name string, r io.Reader) error {
	_, _, err := e.WorkspaceOf(ctx, p, name)
	fresh := errors.Is(err, sandbox.NotFound)
	m, err := e.mounts.Mount(ctx, p, name, true)
	if err != nil {
		return sandbox.Wrap(err, opImport, "")
	}
	err = m.Import(ctx, r)
	m.Release()
	if err != nil && fresh {
		// If another call uses the workspace by now, it stays.
		if _, rerr := e.mounts.Remove(context.WithoutCancel(ctx), m.Record(), false); rerr != nil {
			err = errors.Join(err, rerr)
		}
	}
	return sandbox.Wrap(err, opImport, "")
}

// ImportArchive is like ImportWorkspace, for the existing workspace with that
// handle. The caller must have checked the right to it.
func (e *Engine) ImportArchive(ctx context.Context, handle string, r io.Reader) error {
	m, err := e.mounts.ByID(ctx, handle)
	if err != nil {
		return sandbox.Wrap(err, opImport, "")
	}
	defer m.Release()
	return sandbox.Wrap(m.Import(ctx, r), opImport, "")
}

// An OpenFile is a file of a workspace that is open for reading.
type OpenFile struct {
	*workspace.File
	release func()
}

// Close closes the file.
func (f *OpenFile) Close() error {
	defer f.release()
	return f.File.Close()
}

// OpenFile opens a file of the workspace with that ID or handle, of any
// principal. The caller must have checked the right to it. The file can be read
// until ctx ends; the caller must close it.
func (e *Engine) OpenFile(ctx context.Context, idOrHandle, name string) (*OpenFile, error) {
	const op = "open file"
	m, err := e.mounts.ByID(ctx, idOrHandle)
	if err != nil {
		return nil, sandbox.Wrap(err, op, "")
	}
	f, err := m.Read(ctx, name)
	if err != nil {
		m.Release()
		return nil, sandbox.Wrap(err, op, "")
	}
	return &OpenFile{File: f, release: m.Release}, nil
}

// WorkspaceOwner returns the principal that owns the workspace with that ID or
// handle. The error is of kind NotFound if there is none.
func (e *Engine) WorkspaceOwner(ctx context.Context, idOrHandle string) (sandbox.Principal, error) {
	if rec, err := e.store.Workspace(ctx, idOrHandle); err == nil {
		return rec.Principal, nil
	}
	m, err := e.mounts.ByID(ctx, idOrHandle) // a conversation's directory may have no record
	if err != nil {
		return "", sandbox.Wrap(err, "find workspace", "")
	}
	defer m.Release()
	return m.Record().Principal, nil
}

// PutFile writes all of r to a file of the workspace with that ID or handle, by
// an atomic rename at the end. It returns the number of bytes. The caller must
// have checked the right to write. size is the number of bytes to come, or -1
// if that is unknown.
func (e *Engine) PutFile(ctx context.Context, idOrHandle, name string, r io.Reader, size int64) (int64, error) {
	const op = "write file"
	m, err := e.mounts.ByID(ctx, idOrHandle)
	if err != nil {
		return 0, sandbox.Wrap(err, op, "")
	}
	defer m.Release()
	n, err := m.Put(ctx, name, r, size)
	return n, sandbox.Wrap(err, op, "")
}

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

// Volume opens the workspace with that ID or handle, of any principal, for access to
// its files. The caller must have checked the right to it, and calls Release.
func (e *Engine) Volume(ctx context.Context, idOrHandle string) (*mount.Mount, error) {
	m, err := e.mounts.ByID(ctx, idOrHandle)
	return m, sandbox.Wrap(err, "open volume", "")
}
