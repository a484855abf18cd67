package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// inWorkspace parses WORKSPACE:PATH. A path of this machine that has a colon is
// written with a slash before the colon, like ./a:b. The name ends in a slash if
// the path does. A name that begins as a sandbox's is none of a workspace.
func inWorkspace(arg string) (workspace, name string, ok bool) {
	workspace, name, ok = strings.Cut(arg, ":")
	if !ok || strings.ContainsAny(workspace, `/\`) || filepath.VolumeName(arg) != "" || sandbox.ValidID(sandbox.CanonicalID(workspace)) || strings.HasPrefix(workspace, sandboxPrefix) || workspace == "" {
		return "", "", false
	}
	// Programs know the workspace as /data.
	clean := strings.Trim(strings.TrimPrefix(path.Clean("/"+name)+"/", sandbox.WorkDir+"/"), "/")
	if clean != "" && strings.HasSuffix(name, "/") {
		clean += "/"
	}
	return workspace, clean, true
}

// copyWorkspaceFile copies one file between this machine and a workspace.
func (p *program) copyWorkspaceFile(ctx context.Context, from, to string) (err error) {
	sys, err := p.open(ctx, func(o *app.Options) { o.Passive = true })
	if err != nil {
		return err
	}
	defer p.close(ctx, sys, &err)
	var n int64
	if workspace, name, ok := inWorkspace(from); ok {
		n, err = fromWorkspace(ctx, sys, workspace, name, to)
	} else {
		workspace, name, _ = inWorkspace(to)
		n, err = toWorkspace(ctx, sys, from, workspace, name)
	}
	if err == nil {
		p.Say("copied 1 file, %s", sandbox.FormatBytes(n))
	}
	return err
}

// errDirectory refuses a directory of a workspace.
func errDirectory(workspace string) error {
	return sandbox.WithHint(console.UsageError("cp copies single files of workspaces"),
		"for directories, use glovebox workspace export %s and glovebox workspace import %[1]s", workspace)
}

func fromWorkspace(ctx context.Context, sys *app.System, workspace, name, to string) (int64, error) {
	if name == "" || strings.HasSuffix(name, "/") {
		return 0, errDirectory(workspace)
	}
	id, _, err := sys.Engine.WorkspaceOf(ctx, sandbox.Local, workspace)
	if err != nil {
		return 0, err
	}
	f, err := sys.Engine.OpenFile(ctx, id, name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if fi, err := os.Stat(to); err == nil && fi.IsDir() {
		to = filepath.Join(to, path.Base(name))
	}
	// Rename at the end, so that a failed copy leaves the file as it was.
	tmp, err := os.CreateTemp(filepath.Dir(to), ".glovebox-cp-*")
	if err != nil {
		return 0, sandbox.Errorf(sandbox.Invalid, "write file: %w", err)
	}
	n, err := io.Copy(tmp, f)
	if cerr := tmp.Chmod(0o644); !errors.Is(cerr, errors.ErrUnsupported) { // Windows has no such permissions
		err = errors.Join(err, cerr)
	}
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), to)
	}
	if err != nil {
		return n, errors.Join(sandbox.Errorf(sandbox.Invalid, "write file: %w", err), os.Remove(tmp.Name()))
	}
	return n, nil
}

func toWorkspace(ctx context.Context, sys *app.System, from, workspace, name string) (int64, error) {
	f, err := os.Open(from)
	if err != nil {
		return 0, sandbox.Errorf(sandbox.Invalid, "read file: %w", err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if fi.IsDir() {
		return 0, errDirectory(workspace)
	}
	if name == "" || strings.HasSuffix(name, "/") {
		name = path.Join(name, filepath.Base(from))
	}
	return sys.Engine.WriteWorkspaceFile(ctx, sandbox.Local, workspace, name, f)
}
