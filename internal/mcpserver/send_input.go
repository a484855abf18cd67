package mcpserver

import (
	"context"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
)

func (s *Server) sendInput() tool {
	type arguments struct {
		RunID string `json:"run_id"`
		Text  string `json:"text" jsonschema:"end a line with \\n"`
		EOF   bool   `json:"eof,omitempty" jsonschema:"close the input"`
	}
	type sent struct {
		RunID string `json:"run_id"`
		Bytes int    `json:"bytes"`
		EOF   bool   `json:"eof,omitempty"`
	}
	return takes(tool{
		name:        "send_input",
		title:       "Send input to a run",
		description: "Write to the stdin of a run started with wait_seconds. get_run shows the answer.",
		scope:       auth.ScopeRun,
		open:        true,
	}, nil, func(ctx context.Context, c call, in arguments) (*mcp.CallToolResult, error) {
		if err := s.engine.SendInput(ctx, c.principal, in.RunID, []byte(in.Text), in.EOF); err != nil {
			return nil, err
		}
		s.grace.Claim(c.principal, in.RunID)
		text := fmt.Sprintf("sent %d bytes to %s", len(in.Text), in.RunID)
		if in.EOF {
			text += " and closed its input"
		}
		return answer.New(sent{in.RunID, len(in.Text), in.EOF}, text)
	})
}
