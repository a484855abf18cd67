package mount

import (
	"context"
	"io"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/workspace"
)

// Names of operations, for errors.
const (
	OpExport = "export workspace"
	OpImport = "import workspace"
)

// Handles gives access to the workspaces of a set by their IDs and handles, which are
// parts of URLs. It does not check who asks.
type Handles struct{ set *Set }

// Handles returns the access to the workspaces of s by their IDs and handles.
func (s *Set) Handles() Handles { return Handles{s} }

// ExportArchive is like [Mount.Export], for the workspace with that handle.
// The caller must have checked the right to it.
func (h Handles) ExportArchive(ctx context.Context, handle string, w io.Writer) error {
	m, err := h.set.ByID(ctx, handle)
	if err != nil {
		return sandbox.Wrap(err, OpExport, "")
	}
	defer m.Release()
	return sandbox.Wrap(m.Export(ctx, w), OpExport, "")
}

// ImportArchive is like [Mount.Import], for the existing workspace with that
// handle. The caller must have checked the right to it.
func (h Handles) ImportArchive(ctx context.Context, handle string, r io.Reader) error {
	m, err := h.set.ByID(ctx, handle)
	if err != nil {
		return sandbox.Wrap(err, OpImport, "")
	}
	defer m.Release()
	return sandbox.Wrap(m.Import(ctx, r), OpImport, "")
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
func (h Handles) OpenFile(ctx context.Context, idOrHandle, name string) (*OpenFile, error) {
	const op = "open file"
	m, err := h.set.ByID(ctx, idOrHandle)
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
func (h Handles) WorkspaceOwner(ctx context.Context, idOrHandle string) (sandbox.Principal, error) {
	if rec, err := h.set.opts.Records.Workspace(ctx, idOrHandle); err == nil {
		return rec.Principal, nil
	}
	m, err := h.set.ByID(ctx, idOrHandle) // a conversation's directory may have no record
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
func (h Handles) PutFile(ctx context.Context, idOrHandle, name string, r io.Reader, size int64) (int64, error) {
	const op = "write file"
	m, err := h.set.ByID(ctx, idOrHandle)
	if err != nil {
		return 0, sandbox.Wrap(err, op, "")
	}
	defer m.Release()
	n, err := m.Put(ctx, name, r, size)
	return n, sandbox.Wrap(err, op, "")
}

// Volume opens the workspace with that ID or handle, of any principal, for access to
// its files. The caller must have checked the right to it, and calls Release.
func (h Handles) Volume(ctx context.Context, idOrHandle string) (*Mount, error) {
	m, err := h.set.ByID(ctx, idOrHandle)
	return m, sandbox.Wrap(err, "open volume", "")
}
