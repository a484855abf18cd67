package mcpserver

import (
	"context"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const setNetworkInput = `{"type":"object","properties":{"sandbox_id":{"type":"string"},"network":{"type":"string"}},"required":["sandbox_id","network"]}`

func (s *Server) setNetwork() tool {
	type arguments struct {
		SandboxID string          `json:"sandbox_id"`
		Network   sandbox.Network `json:"network"`
	}
	return tool{
		name:        "set_network",
		title:       "Change a sandbox's network",
		description: "Change what a sandbox that has a network may reach.",
		input:       setNetworkInput,
		output:      sandboxOutput,
		untold:      true,
		scope:       auth.ScopeRun,
		destructive: true, // it ends connections
		idempotent:  true,
		run: typed(setNetworkInput, func(ctx context.Context, c call, in arguments) (*mcp.CallToolResult, error) {
			sb, err := s.engine.SetNetwork(ctx, c.principal, in.SandboxID, in.Network)
			if err != nil {
				return nil, err
			}
			return result(newSandboxResult(sb), fmt.Sprintf("sandbox %s now has network %s; connections that it does not allow were ended", sb.ID, sb.Network))
		}),
	}
}
