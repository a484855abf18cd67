package mcpserver

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/snapshots"
)

func (s *Server) snapshot() tool {
	return takes(tool{
		name:        "snapshot",
		title:       "Snapshots",
		description: "Keep a sandbox's state, return to it, or copy the sandbox.",
		scope:       auth.ScopeRun,
		destructive: true,
	}, limits{"action": oneOf(snapshots.Actions...)}, func(ctx context.Context, c call, in snapshots.Arguments) (*mcp.CallToolResult, error) {
		r, text, err := snapshots.Do(ctx, s.engine, c.principal, in)
		if err != nil {
			return nil, err
		}
		return answer.New(r, text)
	})
}
