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

// checkMounts checks the volumes of a new sandbox.
func (s *Server) checkMounts(ctx context.Context, p sandbox.Principal, mounts []volumeMount) error {
	if n := len(mounts); n > 1 && !s.opts.Mounts {
		return sandbox.Errorf(sandbox.Unsupported, "volumeMounts: a sandbox has one volume at most, and %d are named: this server's driver mounts one workspace", n)
	} else if n > sandbox.MaxVolumes {
		return sandbox.Errorf(sandbox.Invalid, "volumeMounts: a sandbox has %d volumes at most, and %d are named", sandbox.MaxVolumes, n)
	}
	for i, m := range mounts {
		if err := checkPath(m, mounts[:i]); err != nil {
			return err
		}
		if err := s.checkVolume(ctx, p, m); err != nil {
			return err
		}
	}
	return nil
}

// checkPath checks a volume and its path, which must not be in the path of another.
func checkPath(m volumeMount, others []volumeMount) error {
	bad := func(why string) error {
		return sandbox.Errorf(sandbox.Invalid, "volumeMounts: path: %s %s", short(m.Path), why)
	}
	inside := func(dir string) bool { return m.Path == dir || strings.HasPrefix(m.Path, dir+"/") }
	switch {
	case m.Name == "":
		return sandbox.Errorf(sandbox.Invalid, "volumeMounts: name: it is missing")
	case !path.IsAbs(m.Path) || len(m.Path) > maxPath || strings.ContainsRune(m.Path, 0):
		return bad("is not an absolute path")
	case path.Clean(m.Path) != m.Path || m.Path == "/":
		return bad("must name a directory below /, without . and .. and without a slash at the end")
	case slices.ContainsFunc(kernelDirs, inside):
		return bad("belongs to the kernel")
	case inside(sandbox.WorkDir) && m.Path != sandbox.WorkDir:
		return bad("is below " + sandbox.WorkDir + ", where a volume itself is")
	}
	for _, o := range others {
		if inside(o.Path) || strings.HasPrefix(o.Path, m.Path+"/") {
			return bad("is the path of another volume, or one is in the other")
		}
	}
	return nil
}

// setVolumes has a new sandbox have volumes, and returns the one that needs a link
// (see linkVolume), or nil. One of them is its workspace: the engine wants one, and
// tells the changes of it alone.
func (s *Server) setVolumes(req *sandbox.CreateRequest, mounts []volumeMount) (link *volumeMount) {
	if len(mounts) == 0 {
		return nil
	}
	main := mounts[max(0, slices.IndexFunc(mounts, func(m volumeMount) bool { return m.Path == sandbox.WorkDir }))]
	req.Workspace, req.Labels[labelVolume] = main.Name, main.Path
	if !s.opts.Mounts {
		return &main
	}
	for _, m := range mounts {
		if m.Path != sandbox.WorkDir {
			req.Volumes = append(req.Volumes, sandbox.Volume{Workspace: m.Name, Path: m.Path})
		}
	}
	return nil
}

// maxPath bounds the path of a volume, in bytes.
const maxPath = 1024

// mountsOf returns the volumes of a sandbox in E2B's format.
func mountsOf(sb sandbox.Sandbox) []volumeMount {
	if sb.Workspace == "" {
		return nil
	}
	at := sb.Labels[labelVolume]
	if at == "" {
		at = sandbox.WorkDir
	}
	list := []volumeMount{{sb.Workspace, at}}
	for _, v := range sb.Volumes {
		if v.Path != at {
			list = append(list, volumeMount{v.Workspace, v.Path})
		}
	}
	return list
}

// checkVolume refuses a volume that does not exist. The engine would create it.
func (s *Server) checkVolume(ctx context.Context, p sandbox.Principal, m volumeMount) error {
	_, _, err := s.opts.Engine.WorkspaceOf(ctx, p, m.Name)
	if errors.Is(err, sandbox.NotFound) {
		return sandbox.Errorf(sandbox.NotFound, "volumeMounts: there is no volume %s", short(m.Name))
	}
	return err
}

// linkVolume makes the path of a volume in a new sandbox lead to the volume, which is
// at [sandbox.WorkDir], because the driver mounts nothing else. A link keeps the rules of workspaces in force whatever path
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
