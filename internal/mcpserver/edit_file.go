package mcpserver

import (
	"context"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (s *Server) editFile() tool {
	type arguments struct {
		SandboxID string         `json:"sandbox_id"`
		Path      string         `json:"path"`
		Old       *string        `json:"old_string,omitempty" jsonschema:"must occur once"`
		New       *string        `json:"new_string,omitempty"`
		All       bool           `json:"replace_all,omitempty"`
		Edits     []sandbox.Edit `json:"edits,omitempty" jsonschema:"several, in turn: all or none"`
	}
	type edited struct {
		Path string `json:"path"`
		sandbox.Edited
	}
	return takes(tool{
		name:        "edit_file",
		title:       "Edit a file",
		description: "Replace text in a file of a sandbox.",
		scope:       auth.ScopeFiles,
	}, nil, func(ctx context.Context, c call, in arguments) (*mcp.CallToolResult, error) {
		edits := in.Edits
		switch {
		case len(edits) > 0 && (in.Old != nil || in.New != nil || in.All):
			return nil, sandbox.Errorf(sandbox.Invalid, "edits: given beside old_string, new_string or replace_all; put all of them into edits")
		case len(edits) == 0 && in.Old == nil:
			return nil, sandbox.Errorf(sandbox.Invalid, "old_string: missing; it is required without edits, as a string")
		case len(edits) == 0 && in.New == nil:
			return nil, sandbox.Errorf(sandbox.Invalid, "new_string: missing; it is required without edits, as a string that may be empty")
		case len(edits) == 0:
			edits = []sandbox.Edit{{Old: *in.Old, New: *in.New, All: in.All}}
		}
		done, err := s.engine.EditFile(ctx, c.principal, in.SandboxID, in.Path, edits)
		if err != nil {
			return nil, err
		}
		text := fmt.Sprintf("edited %s: %s, %d bytes", in.Path, number(done.Replacements, "replacement", "replacements"), done.Size)
		for i, line := range done.Lines {
			if i == 0 {
				text += ", at line"
			} else {
				text += ","
			}
			text += fmt.Sprintf(" %d", line)
		}
		return answer.New(edited{in.Path, done}, text)
	})
}
