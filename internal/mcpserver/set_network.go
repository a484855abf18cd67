package mcpserver

import (
	"context"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (s *Server) setNetwork() tool {
	type arguments struct {
		SandboxID string          `json:"sandbox_id"`
		Network   sandbox.Network `json:"network"`
	}
	return takes(tool{
		name:        "set_network",
		title:       "Change a sandbox's network",
		description: "Change what a sandbox with a network may reach.",
		output:      sandboxOutput,
		untold:      true,
		scope:       auth.ScopeRun,
		destructive: true, // it may open the network, and it ends connections
		idempotent:  true,
	}, nil, func(ctx context.Context, c call, in arguments) (*mcp.CallToolResult, error) {
		sb, err := s.engine.SetNetwork(ctx, c.principal, in.SandboxID, in.Network)
		if err != nil {
			return nil, err
		}
		r := newSandboxResult(sb)
		r.Note = "connections that it does not allow were ended"
		return answer.New(r, fmt.Sprintf("sandbox %s now has network %s; %s", sb.ID, sb.Network, r.Note))
	})
}
