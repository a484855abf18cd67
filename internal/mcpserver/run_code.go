package mcpserver

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/language"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (s *Server) runCode() tool {
	type arguments struct {
		Code      string  `json:"code"`
		Language  *string `json:"language,omitempty" jsonschema:"default python"`
		Context   *string `json:"context,omitempty" jsonschema:"keeps variables; default \"default\""`
		Stateless bool    `json:"stateless,omitempty" jsonschema:"without a context"`
		Restart   bool    `json:"restart,omitempty" jsonschema:"start the context fresh"`
		Rollback  bool    `json:"rollback_on_failure,omitempty" jsonschema:"unless the verdict is ok, undo all but /data"`
		runArgs
	}
	return takes(tool{
		name:  "run_code",
		title: "Run code",
		description: "Run code in a sealed Linux sandbox. Returns output, the last expression's value, plots and a verdict. " +
			"Files and variables stay: give the sandbox_id of the result to go on there.",
		output: runOutput,
		main:   true,
		long:   true,
		scope:  auth.ScopeRun,
		open:   true,
	}, runLimits, func(ctx context.Context, c call, in arguments) (*mcp.CallToolResult, error) {
		if in.Code == "" {
			return nil, sandbox.Errorf(sandbox.Invalid, `code: "" is no program`)
		}
		language := language.Default
		if in.Language != nil {
			language = *in.Language
		}
		r := sandbox.RunRequest{Code: in.Code, Language: language, Restart: in.Restart, RollbackOnFailure: in.Rollback}
		switch {
		case in.Stateless && (in.Context != nil || in.Restart):
			return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "stateless: true has no context, and context or restart names one"),
				"leave out one of the two")
		case in.Stateless:
		case in.Context != nil:
			r.Context = *in.Context
			if r.Context == "" {
				return nil, sandbox.Errorf(sandbox.Invalid, `context: "" is no name`)
			}
		default:
			r.Context = sandbox.DefaultContext
		}
		return s.start(ctx, c, r, in.runArgs)
	})
}
