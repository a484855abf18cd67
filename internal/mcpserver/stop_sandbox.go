package mcpserver

import (
	"context"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/language"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (s *Server) stopSandbox() tool {
	type arguments struct {
		SandboxID string  `json:"sandbox_id"`
		Context   *string `json:"context,omitempty" jsonschema:"end only this context, with its variables"`
		Language  *string `json:"language,omitempty" jsonschema:"the context's; default python"`
	}
	type stopped struct {
		SandboxID string        `json:"sandbox_id"`
		State     sandbox.State `json:"state"`
		Context   string        `json:"context,omitempty"`
		Language  string        `json:"language,omitempty"`
	}
	return takes(tool{
		name:        "stop_sandbox",
		title:       "Stop a sandbox or a context",
		description: "Stop a sandbox for good: its runs end, its files are gone, but for a workspace's.",
		scope:       auth.ScopeRun,
		destructive: true,
		idempotent:  true,
	}, nil, func(ctx context.Context, c call, in arguments) (*mcp.CallToolResult, error) {
		if in.Context != nil {
			done := stopped{SandboxID: in.SandboxID, State: sandbox.Running, Context: *in.Context, Language: language.Default}
			if in.Language != nil {
				done.Language = *in.Language
			}
			if err := s.engine.RemoveContext(ctx, c.principal, done.SandboxID, done.Context, done.Language); err != nil {
				return nil, err
			}
			return answer.New(done, fmt.Sprintf("ended context %s of %s in %s", done.Context, done.Language, done.SandboxID))
		}
		if in.Language != nil {
			return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "language: %q without context", *in.Language), "name the context to end, or leave out language to stop the sandbox")
		}
		if err := s.engine.Stop(ctx, c.principal, in.SandboxID); err != nil {
			return nil, err
		}
		return answer.New(stopped{SandboxID: in.SandboxID, State: sandbox.Stopped}, "stopped "+in.SandboxID)
	})
}
