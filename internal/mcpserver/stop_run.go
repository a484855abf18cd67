package mcpserver

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
)

const stopRunInput = `{"type":"object","properties":{"run_id":{"type":"string"}},"required":["run_id"],"additionalProperties":false}`

func (s *Server) stopRun() tool {
	type arguments struct {
		RunID string `json:"run_id"`
	}
	return tool{
		name:        "stop_run",
		title:       "Stop a run",
		description: "End a run and every process it started. The sandbox stays.",
		input:       stopRunInput,
		output:      runOutput,
		scope:       auth.ScopeRun,
		destructive: true,
		idempotent:  true,
		run: typed(stopRunInput, func(ctx context.Context, c call, in arguments) (*mcp.CallToolResult, error) {
			run, err := s.engine.StopRun(ctx, c.principal, in.RunID)
			if err != nil {
				return nil, err
			}
			return s.show(ctx, c, run, 0)
		}),
	}
}
