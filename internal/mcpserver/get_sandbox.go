package mcpserver

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
)

const sandboxIDInput = `{"type":"object","properties":{"sandbox_id":{"type":"string"}},"required":["sandbox_id"]}`

func (s *Server) getSandbox() tool {
	type arguments struct {
		SandboxID string `json:"sandbox_id"`
	}
	return tool{
		name:        "get_sandbox",
		title:       "Look at a sandbox",
		description: "Returns a sandbox's state, limits, when it stops and its receipt.",
		input:       sandboxIDInput,
		output:      sandboxOutput,
		untold:      true,
		scope:       auth.ScopeRun,
		readOnly:    true,
		run: typed(sandboxIDInput, func(ctx context.Context, c call, in arguments) (*mcp.CallToolResult, error) {
			sb, err := s.engine.Get(ctx, c.principal, in.SandboxID)
			if err != nil {
				return nil, err
			}
			r := newSandboxResult(sb)
			return result(r, r.text())
		}),
	}
}
