package mcpserver

import (
	"context"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// HostFiles copies between sandboxes and the directories of this machine that its
// user allowed. It is only for the local user.
type HostFiles interface {
	CopyIn(ctx context.Context, p sandbox.Principal, hostPath, sandboxID, path string, ignore bool, progress func(sandbox.Copied)) (sandbox.Copied, error)
	CopyOut(ctx context.Context, p sandbox.Principal, sandboxID, path, hostPath string, progress func(sandbox.Copied)) (sandbox.Copied, error)
}

const copyInInput = `{"type":"object","properties":{` +
	`"host_path":{"type":"string"},"sandbox_id":{"type":"string"},"path":{"type":"string"},` +
	`"gitignore":{"type":"boolean","description":"leave out what .gitignore names"}` +
	`},"required":["host_path","sandbox_id","path"]}`

const copyOutInput = `{"type":"object","properties":{` +
	`"sandbox_id":{"type":"string"},"path":{"type":"string"},"host_path":{"type":"string"}` +
	`},"required":["sandbox_id","path","host_path"]}`

type copyArguments struct {
	HostPath  string `json:"host_path"`
	SandboxID string `json:"sandbox_id"`
	Path      string `json:"path"`
	Gitignore bool   `json:"gitignore"`
}

func (s *Server) copyIn() tool {
	return tool{
		name:        "copy_in",
		title:       "Copy into a sandbox",
		description: "Copy a file or directory of the user's machine into a sandbox.",
		input:       copyInInput,
		scope:       auth.ScopeFiles,
		destructive: true,
		run: typed(copyInInput, func(ctx context.Context, c call, in copyArguments) (*mcp.CallToolResult, error) {
			n, err := s.opts.HostFiles.CopyIn(ctx, c.principal, in.HostPath, in.SandboxID, in.Path, in.Gitignore, copyProgress(ctx, c))
			return copied(n, err)
		}),
	}
}

func (s *Server) copyOut() tool {
	return tool{
		name:        "copy_out",
		title:       "Copy out of a sandbox",
		description: "Copy a file or directory of a sandbox to the user's machine.",
		input:       copyOutInput,
		scope:       auth.ScopeFiles,
		destructive: true,
		run: typed(copyOutInput, func(ctx context.Context, c call, in copyArguments) (*mcp.CallToolResult, error) {
			n, err := s.opts.HostFiles.CopyOut(ctx, c.principal, in.SandboxID, in.Path, in.HostPath, copyProgress(ctx, c))
			return copied(n, err)
		}),
	}
}

func copied(n sandbox.Copied, err error) (*mcp.CallToolResult, error) {
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("copied %d files, %d directories and %d links, %s", n.Files, n.Directories, n.Links, sandbox.FormatBytes(n.Bytes))
	if n.Skipped > 0 {
		text += fmt.Sprintf("; left out %d that are none of these, or links that lead out", n.Skipped)
	}
	if n.Refused {
		text += fmt.Sprintf("; left out what programs on the machine execute or obey: %q. To have it, pack it into an archive in the sandbox and copy that, "+
			"or start the server with --allow-tool-files", n.ToolFiles)
	}
	return result(n, text)
}

// copyProgress returns a callback that reports a copy's progress, if the client
// asked for it.
func copyProgress(ctx context.Context, c call) func(sandbox.Copied) {
	token := c.req.Params.GetProgressToken()
	if token == nil {
		return func(sandbox.Copied) {}
	}
	return func(n sandbox.Copied) {
		_ = c.req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
			ProgressToken: token, Progress: float64(n.Bytes) + float64(n.Files), Message: fmt.Sprintf("%d files, %s", n.Files, sandbox.FormatBytes(n.Bytes)),
		}) // a lost notification does no harm
	}
}
