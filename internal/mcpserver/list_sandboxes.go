package mcpserver

import (
	"context"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
)

const listSandboxesOutput = `{"type":"object","properties":{"sandboxes":{"type":"array","items":{"type":"object"}}}}`

func (s *Server) listSandboxes() tool {
	type list struct {
		Sandboxes []sandboxResult `json:"sandboxes"`
	}
	return takes(tool{
		name:        "list_sandboxes",
		title:       "List sandboxes",
		description: "Returns your sandboxes, without receipts.",
		output:      listSandboxesOutput,
		scope:       auth.ScopeRun,
		readOnly:    true,
	}, nil, func(ctx context.Context, c call, _ struct{}) (*mcp.CallToolResult, error) {
		sbs, err := s.engine.List(ctx, c.principal)
		if err != nil {
			return nil, err
		}
		out := list{Sandboxes: make([]sandboxResult, len(sbs))}
		lines := make([]string, len(sbs))
		for i, sb := range sbs {
			out.Sandboxes[i] = newSandboxResult(sb)
			out.Sandboxes[i].Receipt = nil
			lines[i] = out.Sandboxes[i].line()
		}
		if len(lines) == 0 {
			lines = []string{"There are no sandboxes."}
		}
		return result(out, strings.Join(lines, "\n"))
	})
}
