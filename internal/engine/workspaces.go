package engine

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/engine/excerpt"
	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
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
	err := e.withWorkspace(ctx, p, name, op, func(m *mount) error {
		s, err := m.look(ctx)
		if err != nil {
			return m.tooMuch(err)
		}
		m.note(&s.Usage)
		rec, err := e.store.Workspace(ctx, m.rec.ID)
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
	rec, err := e.namedWorkspace(ctx, p, name)
	if errors.Is(err, sandbox.NotFound) {
		return sandbox.Wrap(request.NoWorkspace(name), op, "")
	}
	if err != nil {
		return sandbox.Wrap(err, op, "")
	}
	deleted, err := e.removeWorkspace(ctx, rec, false)
	if err == nil && !deleted {
		err = sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "workspace: %s is in use", excerpt.Quote(name)),
			"stop the sandboxes that have it first")
	}
	return sandbox.Wrap(err, op, "")
}

// removeWorkspace removes a workspace that is not in use. If idle is set, it
// also must have been unused for WorkspaceTTL. It reports whether it did.
func (e *Engine) removeWorkspace(ctx context.Context, rec store.Workspace, idle bool) (bool, error) {
	id := workspace.ID(rec.ID)
	e.mu.Lock()
	used := e.mounts[id] != nil
	e.mu.Unlock()
	if used {
		return false, nil
	}
	var before time.Time
	if idle {
		before = e.now().Add(-e.opts.WorkspaceTTL)
	}
	purge := func() error { return nil }
	deleted, err := e.store.DeleteWorkspace(ctx, rec.ID, before, func() (err error) {
		purge, err = e.opts.Workspaces.Remove(id)
		return err
	})
	if err != nil || !deleted {
		return false, err
	}
	e.log.Info("workspace removed", "workspace", rec.Handle, "idle", idle)
	return true, purge()
}

// sweepWorkspaces removes workspaces that were unused for WorkspaceTTL.
func (e *Engine) sweepWorkspaces(ctx context.Context) error {
	if e.opts.Workspaces == nil || e.opts.WorkspaceTTL == 0 {
		return nil
	}
	recs, err := e.store.IdleWorkspaces(ctx, e.now().Add(-e.opts.WorkspaceTTL))
	errs := []error{err}
	for _, rec := range recs {
		_, err := e.removeWorkspace(ctx, rec, true)
		errs = append(errs, err)
	}
	return sandbox.Wrap(errors.Join(errs...), "sweep workspaces", "")
}

// withWorkspace calls do with the mount of an existing workspace of p.
func (e *Engine) withWorkspace(ctx context.Context, p sandbox.Principal, name, op string, do func(*mount) error) error {
	m, err := e.mount(ctx, p, name, false)
	if err != nil {
		return sandbox.Wrap(err, op, "")
	}
	defer m.release()
	return sandbox.Wrap(do(m), op, "")
}

// ExportWorkspace writes a workspace to w as a tar archive. A sparse file
// counts with its full size.
func (e *Engine) ExportWorkspace(ctx context.Context, p sandbox.Principal, name string, w io.Writer) error {
	return e.withWorkspace(ctx, p, name, opExport, func(m *mount) error { return m.export(ctx, w) })
}

// ExportArchive is like ExportWorkspace, for the workspace with that handle.
// The caller must have checked the right to it.
func (e *Engine) ExportArchive(ctx context.Context, handle string, w io.Writer) error {
	m, err := e.mountByID(ctx, handle)
	if err != nil {
		return sandbox.Wrap(err, opExport, "")
	}
	defer m.release()
	return sandbox.Wrap(m.export(ctx, w), opExport, "")
}

func (m *mount) export(ctx context.Context, w io.Writer) error {
	_, err := m.ws.Export(ctx, w, exportFactor*m.e.opts.WorkspaceQuota.Bytes)
	return err
}

// Names of operations, for errors.
const (
	opExport = "export workspace"
	opImport = "import workspace"
)

// exportFactor is how many times its quota a workspace may take when it is
// exported, with the holes of sparse files filled.
const exportFactor = 4

// ImportWorkspace unpacks a tar archive, which may be compressed by gzip, into
// a workspace of p. It creates a missing workspace. It unpacks all files of the
// archive or none.
func (e *Engine) ImportWorkspace(ctx context.Context, p sandbox.Principal, name string, r io.Reader) error {
	_, _, err := e.WorkspaceOf(ctx, p, name)
	fresh := errors.Is(err, sandbox.NotFound)
	m, err := e.mount(ctx, p, name, true)
	if err != nil {
		return sandbox.Wrap(err, opImport, "")
	}
	err = m.load(ctx, r)
	m.release()
	if err != nil && fresh {
		// If another call uses the workspace by now, it stays.
		if _, rerr := e.removeWorkspace(context.WithoutCancel(ctx), m.rec, false); rerr != nil {
			err = errors.Join(err, rerr)
		}
	}
	return sandbox.Wrap(err, opImport, "")
}

// ImportArchive is like ImportWorkspace, for the existing workspace with that
// handle. The caller must have checked the right to it.
func (e *Engine) ImportArchive(ctx context.Context, handle string, r io.Reader) error {
	m, err := e.mountByID(ctx, handle)
	if err != nil {
		return sandbox.Wrap(err, opImport, "")
	}
	defer m.release()
	return sandbox.Wrap(m.load(ctx, r), opImport, "")
}

// importTurn waits until the principal has no other import in progress. The
// size of an archive is unknown before its end, so two imports could each fill
// the rest of the quota. The caller must call done.
func (e *Engine) importTurn(ctx context.Context, p sandbox.Principal) (done func(), err error) {
	for {
		over := make(chan struct{})
		e.mu.Lock()
		other := e.importing[p]
		if other == nil {
			e.importing[p] = over
		}
		e.mu.Unlock()
		if other == nil {
			return func() {
				e.mu.Lock()
				delete(e.importing, p)
				e.mu.Unlock()
				close(over)
			}, nil
		}
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-e.ctx.Done():
			return nil, request.Closed()
		}
	}
}

func (m *mount) load(ctx context.Context, r io.Reader) error {
	done, err := m.e.importTurn(ctx, m.rec.Principal)
	if err != nil {
		return err
	}
	defer done()
	left, err := m.leftAgain(ctx, func(left sandbox.WorkspaceUsage) bool { return left.Bytes > 0 })
	if err != nil {
		return err
	}
	if left.Bytes == 0 {
		return errFull(m)
	}
	defer m.transfer()()
	n, err := m.ws.Import(ctx, r, left.Bytes, left.Files)
	added := sandbox.WorkspaceUsage{Bytes: n.Bytes, Files: int64(n.Files + n.Directories + n.Links)}
	if err != nil {
		if added.Files > 0 {
			_ = m.tally(ctx, added) // a part of the files may be there
		}
		return err
	}
	m.changed()
	m.tellCopies(nil)
	return m.tally(ctx, added)
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
	m, err := e.mountByID(ctx, idOrHandle)
	if err != nil {
		return nil, sandbox.Wrap(err, op, "")
	}
	f, err := m.ws.Read(ctx, name)
	if err != nil {
		m.release()
		return nil, sandbox.Wrap(err, op, "")
	}
	return &OpenFile{File: f, release: m.release}, nil
}

// WorkspaceOwner returns the principal that owns the workspace with that ID or
// handle. The error is of kind NotFound if there is none.
func (e *Engine) WorkspaceOwner(ctx context.Context, idOrHandle string) (sandbox.Principal, error) {
	if rec, err := e.store.Workspace(ctx, idOrHandle); err == nil {
		return rec.Principal, nil
	}
	m, err := e.mountByID(ctx, idOrHandle) // a conversation's directory may have no record
	if err != nil {
		return "", sandbox.Wrap(err, "find workspace", "")
	}
	defer m.release()
	return m.rec.Principal, nil
}

func (e *Engine) mountByID(ctx context.Context, idOrHandle string) (*mount, error) {
	if e.opts.Workspaces == nil {
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no such workspace")
	}
	rec, err := e.store.Workspace(ctx, idOrHandle)
	if errors.Is(err, sandbox.NotFound) {
		return e.mountConversation(ctx, idOrHandle, err)
	}
	if err != nil {
		return nil, err
	}
	return e.hold(rec, workspace.ID(rec.ID))
}

// PutFile writes all of r to a file of the workspace with that ID or handle, by
// an atomic rename at the end. It returns the number of bytes. The caller must
// have checked the right to write. size is the number of bytes to come, or -1
// if that is unknown.
func (e *Engine) PutFile(ctx context.Context, idOrHandle, name string, r io.Reader, size int64) (int64, error) {
	const op = "write file"
	m, err := e.mountByID(ctx, idOrHandle)
	if err != nil {
		return 0, sandbox.Wrap(err, op, "")
	}
	defer m.release()
	n, err := m.put(ctx, name, r, size)
	return n, sandbox.Wrap(err, op, "")
}

// put writes a file within the quota.
func (m *mount) put(ctx context.Context, name string, r io.Reader, size int64) (int64, error) {
	q, err := m.bounded(ctx, r, size, true)
	if err != nil {
		return 0, err
	}
	defer q.done() // after the file was counted
	defer m.transfer()()
	n, err := m.ws.Write(ctx, name, q)
	if err != nil {
		return 0, err
	}
	if size >= 0 && n != size {
		return n, sandbox.Errorf(sandbox.Internal, "%d bytes came where %d were announced", n, size)
	}
	m.changed()
	m.tellCopies(nil)
	// The file is there, even if the count fails.
	_ = m.tally(ctx, sandbox.WorkspaceUsage{Bytes: n, Files: int64(1 + strings.Count(name, "/"))})
	return n, nil
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
	rec, err := e.namedWorkspace(ctx, p, name)
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
