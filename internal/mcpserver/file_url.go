package mcpserver

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/argument"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// expiresLimit bounds the lifetime of a URL, in seconds.
var expiresLimit = between(1, 604800)

// expiry returns the lifetime of a URL; zero is one hour.
func expiry(seconds int64) time.Duration {
	if seconds == 0 {
		return time.Hour
	}
	return time.Duration(seconds) * time.Second
}

// workspacePath converts a path in a sandbox to the name in its workspace. The
// path may be relative to the working directory. The name of the workspace itself
// is ".".
func workspacePath(p string) (string, error) {
	if path.Clean(p) == sandbox.WorkDir {
		return ".", nil
	}
	if !strings.HasPrefix(p, "/") {
		return p, nil
	}
	name, ok := strings.CutPrefix(path.Clean(p), sandbox.WorkDir+"/")
	if !ok {
		return "", sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "path: %s is not in the workspace", argument.Show(p)),
			"only files below %s have URLs", sandbox.WorkDir)
	}
	return name, nil
}

func (s *Server) fileURL() tool {
	type arguments struct {
		Path      string `json:"path" jsonschema:"/data is all files, as tar"`
		SandboxID string `json:"sandbox_id,omitempty"`
		Workspace string `json:"workspace,omitempty"`
		Method    string `json:"method,omitempty"`
		Expires   int64  `json:"expires_seconds,omitempty" jsonschema:"default 3600"`
	}
	type signed struct {
		URL     string    `json:"url"`
		Method  string    `json:"method"`
		Expires time.Time `json:"expires_at"`
	}
	methods, description := []string{"GET", "PUT"}, "Sign a URL to GET a workspace's file, or to PUT one, once."
	if s.opts.ReadOnly {
		methods, description = methods[:1], "Sign a URL to GET a workspace's file."
	}
	return takes(tool{
		name:        "file_url",
		title:       "Get a URL for a file",
		description: description,
		scope:       auth.ScopeFiles,
		readOnly:    s.opts.ReadOnly, // a URL to PUT changes a file
	}, limits{"method": oneOf(methods...), "expires_seconds": expiresLimit}, func(ctx context.Context, c call, in arguments) (*mcp.CallToolResult, error) {
		name, err := workspacePath(in.Path)
		if err != nil {
			return nil, err
		}
		if (in.SandboxID == "") == (in.Workspace == "") {
			return nil, sandbox.Errorf(sandbox.Invalid, "sandbox_id, workspace: give one of the two")
		}
		if in.SandboxID != "" {
			sb, err := s.engine.Get(ctx, c.principal, in.SandboxID)
			if err != nil {
				return nil, err
			}
			if in.Workspace = sb.Workspace; in.Workspace == "" {
				return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "sandbox_id: sandbox %s has no workspace, and only files of workspaces have URLs", sb.ID),
					"make a sandbox with the argument workspace, or use read_file and write_file")
			}
		}
		method := "GET"
		if in.Method != "" {
			method = in.Method
		}
		url, expires, err := s.opts.Files.SignedURL(ctx, c.principal, in.Workspace, name, method, expiry(in.Expires))
		if err != nil {
			return nil, err
		}
		return answer.New(signed{url, method, expires}, fmt.Sprintf("%s %s\nuntil %s", method, url, expires.UTC().Format(time.RFC3339)))
	})
}
