package mcpserver

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (s *Server) stopRun() tool {
	type arguments struct {
		RunID string `json:"run_id"`
	}
	return takes(tool{
		name:        "stop_run",
		title:       "Stop a run",
		description: "End a run and every process it started. The sandbox stays.",
		output:      runOutput,
		untold:      true,
		scope:       auth.ScopeRun,
		idempotent:  true,
	}, nil, func(ctx context.Context, c call, in arguments) (*mcp.CallToolResult, error) {
		run, err := s.engine.StopRun(ctx, c.principal, in.RunID)
		if err != nil {
			return nil, err
		}
		// The result belongs to the run, and the verdict of a stopped run is
		// not ok. So isError is true, as it is for a later get_run. A note says
		// that the call itself succeeded.
		note := ""
		if run.Verdict.Code == sandbox.Cancelled {
			note = "The run was stopped, as asked. Nothing of it goes on."
		}
		return s.show(ctx, c, run, 0, note)
	})
}
