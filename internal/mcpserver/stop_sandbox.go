package mcpserver

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (s *Server) stopSandbox() tool {
	type arguments struct {
		SandboxID string `json:"sandbox_id"`
	}
	type stopped struct {
		SandboxID string        `json:"sandbox_id"`
		State     sandbox.State `json:"state"`
	}
	return tool{
		name:        "stop_sandbox",
		title:       "Stop a sandbox",
		description: "Stop a sandbox for good: its runs end, its files are gone.",
		input:       sandboxIDInput,
		scope:       auth.ScopeRun,
		destructive: true,
		idempotent:  true,
		run: typed(sandboxIDInput, func(ctx context.Context, c call, in arguments) (*mcp.CallToolResult, error) {
			if err := s.engine.Stop(ctx, c.principal, in.SandboxID); err != nil {
				return nil, err
			}
			return result(stopped{in.SandboxID, sandbox.Stopped}, "stopped "+in.SandboxID)
		}),
	}
}
