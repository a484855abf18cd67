package request

import (
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/glovebox-dev/glovebox/internal/engine/excerpt"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// maxVolumePath bounds the path of a volume, in bytes.
const maxVolumePath = 1024

// takenTrees are directories at which, and below which, there can be no volume: they
// belong to the kernel, to the guest or to the workspace.
var takenTrees = []string{"/proc", "/sys", "/dev", "/run", "/var/run", "/var/lock", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/.glovebox", "/.glovebox-workspaces", sandbox.WorkDir}

// checkVolumes checks that a sandbox can have the volumes of a request.
func (r *Rules) checkVolumes(req *sandbox.CreateRequest) error {
	if len(req.Volumes) == 0 {
		return nil
	}
	if !r.Workspaces || !r.Features.Mounts {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "volumes: driver %s mounts one workspace at most", r.Driver),
			"leave the volumes out, or use another driver: glovebox doctor lists them")
	}
	if req.Workspace == "" {
		return sandbox.WithHint(Invalid("volumes: the sandbox has no workspace"), "name a workspace for %s, too", sandbox.WorkDir)
	}
	if n := len(req.Volumes); n > sandbox.MaxVolumes {
		return Invalid("volumes: %d are more than %d", n, sandbox.MaxVolumes)
	}
	for i, v := range req.Volumes {
		if err := CheckWorkspaceName(v.Workspace); err != nil {
			return sandbox.Wrap(err, "volumes", "")
		}
		if why := badVolumePath(v.Path); why != "" {
			return sandbox.WithHint(Invalid("volumes: path: %s %s", excerpt.Quote(v.Path), why), "use a path like /mnt/models")
		}
		for _, other := range req.Volumes[:i] {
			if within(v.Path, other.Path) || within(other.Path, v.Path) {
				return sandbox.WithHint(Invalid("volumes: path: %s and %s are one in the other", excerpt.Quote(other.Path), excerpt.Quote(v.Path)),
					"give each volume a directory of its own")
			}
		}
	}
	return nil
}

// badVolumePath says why no volume can be at a path; "" means that one can.
func badVolumePath(p string) string {
	switch {
	case !path.IsAbs(p) || len(p) > maxVolumePath || !utf8.ValidString(p) || strings.ContainsFunc(p, unicode.IsControl):
		return "is not an absolute path"
	case path.Clean(p) != p:
		return "has . or .. or a slash at its end"
	case p == "/" || slices.Contains(systemDirs, p) || p == "/home/user" || p == "/var/tmp":
		return "is a directory of the system"
	case slices.ContainsFunc(takenTrees, func(dir string) bool { return within(p, dir) }):
		return "is in a directory that is in use already"
	}
	return ""
}

// within reports whether a path is a directory or below it.
func within(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }
