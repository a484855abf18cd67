package mcpserver

import (
	"context"
	"slices"

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
		res, err := s.show(ctx, c, run, 0, "")
		if err != nil || run.Verdict.Code != sandbox.Cancelled {
			return res, err // the run had ended before the call
		}
		// The result belongs to the run, and the verdict of a stopped run is
		// not ok. So isError is true, as it is for a later get_run. The text
		// first says that the call itself succeeded.
		const done = "The run was stopped, as asked. Nothing of it goes on."
		if t, ok := res.Content[0].(*mcp.TextContent); ok {
			t.Text = done + "\n" + t.Text
		} else {
			res.Content = slices.Insert(res.Content, 0, mcp.Content(&mcp.TextContent{Text: done}))
		}
		return res, nil
	})
}
