package mcpserver

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const runCodeInput = `{"type":"object","properties":{` +
	`"code":{"type":"string"},` +
	`"language":{"type":"string","description":"default python"},` +
	sandboxProperty + `,` + timeoutProperty + `,` + waitProperty + `,` + envProperty + `,` + budgetProperty + `,` + imageProperty + `,"network":{"type":"string"}` +
	`},"required":["code"],"additionalProperties":false}`

func (s *Server) runCode() tool {
	type arguments struct {
		Code     string  `json:"code"`
		Language *string `json:"language"`
		runArgs
	}
	return tool{
		name:  "run_code",
		title: "Run code",
		description: "Run a program in a sealed Linux sandbox. Returns its output, exit code and a verdict. " +
			"Files stay in the sandbox: give the sandbox_id of the result to go on there.",
		input:       runCodeInput,
		output:      runOutput,
		scope:       auth.ScopeRun,
		destructive: true,
		run: typed(runCodeInput, func(ctx context.Context, c call, in arguments) (*mcp.CallToolResult, error) {
			if in.Code == "" {
				return nil, sandbox.Errorf(sandbox.Invalid, `code: "" is no program`)
			}
			language := "python"
			if in.Language != nil {
				language = *in.Language
			}
			return s.start(ctx, c, sandbox.RunRequest{Code: in.Code, Language: language}, in.runArgs)
		}),
	}
}
