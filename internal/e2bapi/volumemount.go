package e2bapi

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A volumeMount names a volume and its place in a sandbox.
type volumeMount struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

// kernelDirs are directories of the kernel, in which nothing can be made.
var kernelDirs = []string{"/proc", "/sys", "/dev"}

// checkMounts returns the volume of a new sandbox; nil is none.
func checkMounts(mounts []volumeMount) (*volumeMount, error) {
	if len(mounts) == 0 {
		return nil, nil
	}
	if len(mounts) > 1 {
		return nil, sandbox.Errorf(sandbox.Unsupported, "volumeMounts: a sandbox has one volume at most, and %d are named: drivers mount one workspace", len(mounts))
	}
	m := mounts[0]
	bad := func(why string) (*volumeMount, error) {
		return nil, sandbox.Errorf(sandbox.Invalid, "volumeMounts: path: %s %s", short(m.Path), why)
	}
	inside := func(dir string) bool { return m.Path == dir || strings.HasPrefix(m.Path, dir+"/") }
	switch {
	case m.Name == "":
		return nil, sandbox.Errorf(sandbox.Invalid, "volumeMounts: name: it is missing")
	case !path.IsAbs(m.Path) || len(m.Path) > maxPath || strings.ContainsRune(m.Path, 0):
		return bad("is not an absolute path")
	case path.Clean(m.Path) != m.Path || m.Path == "/":
		return bad("must name a directory below /, without . and .. and without a slash at the end")
	case slices.ContainsFunc(kernelDirs, inside):
		return bad("belongs to the kernel")
	case inside(sandbox.WorkDir) && m.Path != sandbox.WorkDir:
		return bad("is below " + sandbox.WorkDir + ", where the volume itself is")
	}
	return &m, nil
}

// maxPath bounds the path of a volume, in bytes.
const maxPath = 1024

// mountOf returns the volume of a sandbox in E2B's format.
func mountOf(sb sandbox.Sandbox) []volumeMount {
	if sb.Workspace == "" {
		return nil
	}
	at := sb.Labels[labelVolume]
	if at == "" {
		at = sandbox.WorkDir
	}
	return []volumeMount{{sb.Workspace, at}}
}

// checkVolume refuses a volume that does not exist. The engine would create it.
func (s *Server) checkVolume(ctx context.Context, p sandbox.Principal, m *volumeMount) error {
	_, _, err := s.opts.Engine.WorkspaceOf(ctx, p, m.Name)
	if errors.Is(err, sandbox.NotFound) {
		return sandbox.Errorf(sandbox.NotFound, "volumeMounts: there is no volume %s", short(m.Name))
	}
	return err
}

// linkVolume makes the path of a volume in a new sandbox lead to the volume, which is
// at [sandbox.WorkDir]. A link keeps the rules of workspaces in force whatever path
// programs use: the engine finds files of a workspace by that directory.
func (s *Server) linkVolume(ctx context.Context, p sandbox.Principal, id string, m *volumeMount) error {
	if m.Path == sandbox.WorkDir {
		return nil
	}
	_, err := s.opts.Engine.StatFile(ctx, p, id, m.Path)
	if err == nil {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "volumeMounts: path: %s exists in the image", short(m.Path)),
			"name a path that does not exist, such as /mnt/%s", m.Name)
	}
	if !errors.Is(err, sandbox.NotFound) {
		return err
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	err = w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: m.Path[1:], Linkname: sandbox.WorkDir, Mode: 0o777})
	if err := errors.Join(err, w.Close()); err != nil {
		return err
	}
	err = s.opts.Engine.Unpack(ctx, p, id, &archive, sandbox.UnpackTo{Path: "/"})
	if err == nil {
		return nil
	}
	return sandbox.WithHint(err, "if the root of the sandbox is read-only, as in containers, name a path below /home/user or /tmp, or %s", sandbox.WorkDir)
}
