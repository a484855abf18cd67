package mcpserver

import (
	"context"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
)

const sendInputInput = `{"type":"object","properties":{` +
	`"run_id":{"type":"string"},` +
	`"text":{"type":"string","description":"end a line with \\n"},` +
	`"eof":{"type":"boolean","description":"close the input"}` +
	`},"required":["run_id","text"]}`

func (s *Server) sendInput() tool {
	type arguments struct {
		RunID string `json:"run_id"`
		Text  string `json:"text"`
		EOF   bool   `json:"eof"`
	}
	type sent struct {
		RunID string `json:"run_id"`
		Bytes int    `json:"bytes"`
	}
	return tool{
		name:        "send_input",
		title:       "Send input to a run",
		description: "Write to the standard input of a run started with wait_seconds. get_run shows what it answers.",
		input:       sendInputInput,
		scope:       auth.ScopeRun,
		run: typed(sendInputInput, func(ctx context.Context, c call, in arguments) (*mcp.CallToolResult, error) {
			if err := s.engine.SendInput(ctx, c.principal, in.RunID, []byte(in.Text), in.EOF); err != nil {
				return nil, err
			}
			text := fmt.Sprintf("sent %d bytes to %s", len(in.Text), in.RunID)
			if in.EOF {
				text += " and closed its input"
			}
			return result(sent{in.RunID, len(in.Text)}, text)
		}),
	}
}
