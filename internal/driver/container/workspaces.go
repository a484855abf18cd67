package container

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

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

// CheckWorkspace returns an error if a workspace cannot be mounted, as far as this
// machine knows. dir may be "".
func CheckWorkspace(dir string) error {
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

// A WorkspaceServer is this process's server of workspaces. Its methods are safe for
// concurrent use.
type WorkspaceServer struct {
	start func(context.Context) (*Box, error)
	log   *slog.Logger

	starting sync.Mutex // held while the container is started
	box      *Box       // nil until the first use; guarded by starting
}

// NewWorkspaceServer returns a server whose container start starts at the first use,
// with a plan for a [ServerRecord].
func NewWorkspaceServer(start func(context.Context) (*Box, error), log *slog.Logger) *WorkspaceServer {
	return &WorkspaceServer{start: start, log: log}
}

// Dial returns a stream to the server's guest.
func (s *WorkspaceServer) Dial(ctx context.Context) (net.Conn, error) {
	conn, err := s.dial(ctx)
	return conn, sandbox.Wrap(err, "dial workspaces", "")
}

func (s *WorkspaceServer) dial(ctx context.Context) (net.Conn, error) {
	for again := false; ; again = true {
		b, err := s.started(ctx)
		if err != nil {
			return nil, err
		}
		conn, err := b.dial(ctx)
		if err == nil || again || ctx.Err() != nil {
			return conn, err
		}
		// The server ended: the platform was restarted, or the container was removed.
		s.starting.Lock()
		if s.box == b {
			s.box = nil
		}
		s.starting.Unlock()
		b.Release()
		if err := b.platform.Remove(ctx, b.Ref()); err != nil {
			s.log.Warn("remove the container that kept workspaces", "error", err)
		}
	}
}

// started returns the server's container, and starts it if there is none.
func (s *WorkspaceServer) started(ctx context.Context) (*Box, error) {
	s.starting.Lock()
	defer s.starting.Unlock()
	if s.box != nil {
		return s.box, nil
	}
	b, err := s.start(ctx)
	if err != nil {
		return nil, err
	}
	s.box = b
	return b, nil
}

// Stop removes the server's container. A later use starts another.
func (s *WorkspaceServer) Stop() error {
	s.starting.Lock()
	b := s.box
	s.box = nil
	s.starting.Unlock()
	if b == nil {
		return nil
	}
	return b.Destroy(context.Background())
}
