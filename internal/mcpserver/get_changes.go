package mcpserver

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (s *Server) getChanges() tool {
	type arguments struct {
		SandboxID string `json:"sandbox_id"`
		Since     string `json:"since,omitempty" jsonschema:"run_id; default: since its start, or copy_in"`
		Path      string `json:"path,omitempty"`
	}
	return takes(tool{
		name:        "get_changes",
		title:       "Get changes",
		description: "Diff the files of a sandbox.",
		long:        true,
		scope:       auth.ScopeFiles,
		readOnly:    true,
	}, nil, func(ctx context.Context, c call, in arguments) (*mcp.CallToolResult, error) {
		d, err := s.engine.Diff(ctx, c.principal, in.SandboxID, sandbox.DiffRequest{Path: in.Path, Since: in.Since, MaxText: sandbox.DefaultDiffText})
		if err != nil {
			return nil, err
		}
		return answer.New(d, answer.DiffText(&d))
	})
}
