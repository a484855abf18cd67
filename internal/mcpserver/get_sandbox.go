package mcpserver

import (
	"context"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// shownRuns is how many of the last runs get_sandbox lists.
const shownRuns = 5

func (s *Server) getSandbox() tool {
	type arguments struct {
		SandboxID string `json:"sandbox_id"`
	}
	return takes(tool{
		name:        "get_sandbox",
		title:       "Look at a sandbox",
		description: "Returns a sandbox's state, services, contexts, last runs, limits, end and receipt.",
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
		if r.Services, err = s.engine.Services(ctx, c.principal, sb.ID); err != nil {
			return nil, err
		}
		runs, err := s.engine.Runs(ctx, c.principal, sb.ID, shownRuns)
		if err != nil {
			return nil, err
		}
		for _, run := range runs {
			line := runLine{ID: run.ID, Status: run.Status, Started: run.Started}
			if run.Status == sandbox.RunFinished {
				line.Verdict = run.Verdict.Code
			}
			r.Runs = append(r.Runs, line)
		}
		return answer.New(r, r.text())
	})
}
