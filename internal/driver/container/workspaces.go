package container

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// If the platform does not have this machine's directories, workspaces are in a
// volume of the platform, one for each state directory. The server of workspaces is
// a container that mounts this volume. Its guest serves the files to callers
// outside of sandboxes. It runs no user code. Each process makes its own server at
// the first use, and the server ends with the process.

// WorkspacesDir is the mount point of the workspace volume in the server of
// workspaces. It begins the path of a workspace in that volume.
const WorkspacesDir = "/.glovebox-workspaces"

const (
	serverMemory    = 512 << 20
	serverProcesses = 64 // and threads
)

// InVolume reports whether a workspace is in the workspace volume.
func InVolume(dir string) bool {
	return strings.HasPrefix(dir, WorkspacesDir+"/") && path.Clean(dir) == dir && path.Dir(dir) == WorkspacesDir
}

// CheckSpec returns an error if no container can be made of a specification, as far as
// this machine knows.
func CheckSpec(spec *driver.Spec) error {
	if spec.Containers {
		return driver.RefuseContainers()
	}
	err := checkWorkspace(spec.Workspace)
	for _, m := range spec.Mounts {
		err = errors.Join(err, checkWorkspace(m.Dir))
	}
	return err
}

func checkWorkspace(dir string) error {
	if dir == "" || InVolume(dir) {
		return nil
	}
	fi, err := os.Lstat(dir)
	if err != nil || !fi.IsDir() || !filepath.IsAbs(dir) {
		return sandbox.Errorf(sandbox.Invalid, "workspace %q is not a directory (%v)", dir, err)
	}
	return nil
}

// HostPath returns the platform's path of the directory that this process has at
// path. The platform has the directory inside at the path outside, because this
// process is in a container itself. If either is "", the paths are the same.
func HostPath(inside, outside, path string) string {
	if inside == "" || outside == "" {
		return path
	}
	rest, err := filepath.Rel(inside, path)
	if err != nil || !filepath.IsLocal(rest) {
		return path
	}
	return strings.TrimSuffix(outside, "/") + "/" + filepath.ToSlash(rest)
}

// ServerRecord returns the record of a new server of workspaces: its container has
// the image, and is configured like a box, with the volume mounted.
func ServerRecord(volume, image string) *Record {
	return &Record{Disk: DiskMemory, Workspaces: volume, Spec: driver.Spec{
		ID: sandbox.NewID(), Image: image, Hostname: "workspaces", Network: sandbox.NetworkNone,
		Limits: sandbox.Limits{
			CPUs: 1, MemoryBytes: serverMemory, Processes: serverProcesses, DiskBytes: sandbox.MinDiskBytes,
		},
		// Limits may be unenforced, because the server runs no user code.
		AllowUnenforced: []sandbox.ControlName{sandbox.ControlCPU, sandbox.ControlMemory, sandbox.ControlProcesses},
	}}
}
