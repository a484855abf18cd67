package mcpserver

import (
	"context"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (s *Server) getSandbox() tool {
	type arguments struct {
		SandboxID string `json:"sandbox_id"`
	}
	return takes(tool{
		name:        "get_sandbox",
		title:       "Look at a sandbox",
		description: "Returns a sandbox's state, contexts, limits, when it stops and its receipt.",
		output:      sandboxOutput,
		untold:      true,
		scope:       auth.ScopeRun,
		readOnly:    true,
	}, nil, func(ctx context.Context, c call, in arguments) (*mcp.CallToolResult, error) {
		sb, err := s.engine.Get(ctx, c.principal, in.SandboxID)
		if err != nil {
			return nil, err
		}
		r := newSandboxResult(sb)
		if sb.State == sandbox.Running {
			r.Contexts, err = s.engine.Contexts(ctx, c.principal, sb.ID)
			// The sandbox may have just stopped, or belong to another
			// process. The rest of the answer is still valid.
			if err != nil && !errors.Is(err, sandbox.Conflict) && !errors.Is(err, sandbox.Unavailable) {
				return nil, err
			}
		}
		return answer.New(r, r.text())
	})
}
