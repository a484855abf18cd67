package mount

import (
	"context"
	"io"
	"io/fs"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/workspace"
)

// Owner returns the principal that owns the workspace, and Name its name.
func (m *Mount) Owner() sandbox.Principal { return m.rec.Principal }

// Name returns the name of the workspace; see Owner.
func (m *Mount) Name() string { return m.rec.Name }

// files returns the single files of the workspace. The error is of kind Unsupported
// if the workspace is not on this machine.
func (m *Mount) files() (workspace.Files, error) {
	if f, ok := m.ws.(workspace.Files); ok {
		return f, nil
	}
	return nil, sandbox.Errorf(sandbox.Unsupported, "workspaces of a container engine on another machine have no access to single files: use a sandbox that has the workspace")
}

// Describe describes a file; see [workspace.Files].
func (m *Mount) Describe(name string) (sandbox.VolumeFile, error) {
	f, err := m.files()
	if err != nil {
		return sandbox.VolumeFile{}, err
	}
	return f.Describe(name)
}

// List describes the files in a directory; see [workspace.Files].
func (m *Mount) List(ctx context.Context, name string, depth, most int) ([]sandbox.VolumeFile, error) {
	f, err := m.files()
	if err != nil {
		return nil, err
	}
	return f.List(ctx, name, depth, most)
}

// Content opens a regular file for reading. The caller closes it before Release.
func (m *Mount) Content(ctx context.Context, name string) (io.ReadSeekCloser, fs.FileInfo, error) {
	f, err := m.Read(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	return f, f.Info, nil
}

// MakeDir creates a directory within the quota; see [workspace.Files].
func (m *Mount) MakeDir(ctx context.Context, name string, parents bool) error {
	left, err := m.leftAgain(ctx, func(left sandbox.WorkspaceUsage) bool { return left.Files > 0 })
	if err != nil {
		return err
	}
	if left.Files <= 0 {
		return errFull(m)
	}
	return m.change(ctx, func(f workspace.Files) error { return f.MakeDir(name, parents) })
}

// SetAttributes changes the attributes of a file; see [workspace.Files].
func (m *Mount) SetAttributes(ctx context.Context, name string, a sandbox.VolumeAttributes) error {
	return m.change(ctx, func(f workspace.Files) error { return f.SetAttributes(name, a) })
}

// Delete removes a file, or a directory with everything in it.
func (m *Mount) Delete(ctx context.Context, name string) error {
	return m.change(ctx, func(f workspace.Files) error { return f.Delete(name) })
}

// change changes the workspace by do, and counts it again.
func (m *Mount) change(ctx context.Context, do func(workspace.Files) error) error {
	f, err := m.files()
	if err != nil {
		return err
	}
	defer m.transfer()()
	if err := do(f); err != nil {
		return err
	}
	m.Changed()
	m.tellCopies(nil)
	// The change is made, even if the count fails.
	_ = m.tally(ctx, sandbox.WorkspaceUsage{})
	return nil
}
