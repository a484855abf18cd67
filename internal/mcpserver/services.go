package mcpserver

import (
	"context"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Ports makes URLs for servers in sandboxes.
type Ports interface {
	// PortURL returns a signed URL for a port of a principal's sandbox, and the
	// time when it expires. The URL needs no other authentication.
	PortURL(ctx context.Context, p sandbox.Principal, id string, port int, good time.Duration) (string, time.Time, error)
}

// Files makes URLs for the files of workspaces. It needs an HTTP server.
type Files interface {
	// FileLinks returns a function that makes signed URLs, which expire, for the
	// files of a sandbox's workspace. The function is nil if the sandbox has no
	// workspace.
	FileLinks(ctx context.Context, p sandbox.Principal, sandboxID string) (link func(name string) string, err error)
	// SignedURL returns a URL that allows method, GET or PUT, on one file until
	// the returned time.
	SignedURL(ctx context.Context, p sandbox.Principal, workspace, name, method string, good time.Duration) (string, time.Time, error)
}

// HostFiles copies between sandboxes and the directories of this machine that its
// user allowed. It is only for the local user.
type HostFiles interface {
	CopyIn(ctx context.Context, p sandbox.Principal, hostPath, sandboxID, path string, ignore bool, progress func(sandbox.Copied)) (sandbox.Copied, error)
	CopyOut(ctx context.Context, p sandbox.Principal, sandboxID, path, hostPath string, progress func(sandbox.Copied)) (sandbox.Copied, error)
}
