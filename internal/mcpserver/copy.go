package mcpserver

import (
	"context"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (s *Server) copyIn() tool {
	type arguments struct {
		HostPath  string `json:"host_path"`
		SandboxID string `json:"sandbox_id,omitempty" jsonschema:"default: a new one, kept while in use"`
		Path      string `json:"path"`
		Gitignore bool   `json:"gitignore,omitempty" jsonschema:"leave out what .gitignore names"`
	}
	return takes(tool{
		name:        "copy_in",
		title:       "Copy into a sandbox",
		description: "Copy from the user's machine into a sandbox.",
		scope:       auth.ScopeFiles,
	}, nil, func(ctx context.Context, c call, in arguments) (*mcp.CallToolResult, error) {
		var n sandbox.Copied
		target, err := s.fill(ctx, c, in.SandboxID, func(id string) (err error) {
			n, err = s.opts.HostFiles.CopyIn(ctx, c.principal, in.HostPath, id, in.Path, in.Gitignore, copyProgress(ctx, c))
			return err
		})
		if err != nil {
			return nil, err
		}
		type copiedIn struct {
			SandboxID string `json:"sandbox_id"`
			sandbox.Copied
			Note string `json:"note,omitempty"`
		}
		return answer.New(copiedIn{target.id, n, strings.TrimSpace(refusedText(n) + " " + target.note())}, copiedText(n)+target.line())
	})
}

func (s *Server) copyOut() tool {
	type arguments struct {
		SandboxID string `json:"sandbox_id"`
		Path      string `json:"path"`
		HostPath  string `json:"host_path"`
	}
	return takes(tool{
		name:        "copy_out",
		title:       "Copy out of a sandbox",
		description: "Copy a sandbox's file or directory to the user's machine.",
		scope:       auth.ScopeFiles,
		destructive: true, // it replaces files of the user
	}, nil, func(ctx context.Context, c call, in arguments) (*mcp.CallToolResult, error) {
		n, err := s.opts.HostFiles.CopyOut(ctx, c.principal, in.SandboxID, in.Path, in.HostPath, copyProgress(ctx, c))
		if err != nil {
			return nil, err
		}
		type copiedOut struct {
			sandbox.Copied
			Note string `json:"note,omitempty"`
		}
		return answer.New(copiedOut{n, refusedText(n)}, copiedText(n))
	})
}

// number returns n with a noun.
func number(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// copiedText describes a copy for models.
func copiedText(n sandbox.Copied) string {
	text := "copied " + number(n.Files, "file", "files")
	if n.Directories > 0 {
		text += ", " + number(n.Directories, "directory", "directories")
	}
	if n.Links > 0 {
		text += ", " + number(n.Links, "link", "links")
	}
	text += ", " + sandbox.FormatBytes(n.Bytes)
	if n.Skipped > 0 {
		text += fmt.Sprintf("; left out %d that are none of these, or links that lead out", n.Skipped)
	}
	if n.Refused {
		text += fmt.Sprintf("; left out what programs on the machine execute or obey: %q. %s", n.ToolFiles, refusedText(n))
	}
	return text
}

// refusedText says how to get the files that a copy left out, or is "".
func refusedText(n sandbox.Copied) string {
	if !n.Refused {
		return ""
	}
	return "To have it, pack it into an archive in the sandbox and copy that, or start the server with --allow-tool-files"
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
