package mcpserver

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const runCommandInput = `{"type":"object","properties":{` +
	`"command":{"anyOf":[{"type":"string"},{"type":"array","items":{"type":"string"}}],"description":"for sh; several run in order until one fails"},` +
	sandboxProperty + `,` +
	`"cwd":{"type":"string","description":"default /data"},` +
	`"stdin":{"type":"string"},` +
	`"root":{"type":"boolean","description":"run as root of the sandbox"},` +
	timeoutProperty + `,` + waitProperty + `,` + envProperty + `,` + budgetProperty + `,` + imageProperty + `,"workspace":{"type":"string"},"network":{"type":"string"}` +
	`},"required":["command"]}`

// commands is one shell command or a list of them.
type commands []string

// UnmarshalJSON accepts a string or an array of strings.
func (c *commands) UnmarshalJSON(b []byte) error {
	var one string
	if err := json.Unmarshal(b, &one); err == nil {
		*c = commands{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(c))
}

func (s *Server) runCommand() tool {
	type arguments struct {
		Command commands `json:"command"`
		Dir     string   `json:"cwd"`
		Stdin   *string  `json:"stdin"`
		Root    bool     `json:"root"`
		runArgs
	}
	return tool{
		name:        "run_command",
		title:       "Run shell commands",
		description: "Run shell commands in a sandbox. Returns as run_code does.",
		input:       runCommandInput,
		output:      runOutput,
		untold:      true,
		scope:       auth.ScopeRun,
		destructive: true,
		run: typed(runCommandInput, func(ctx context.Context, c call, in arguments) (*mcp.CallToolResult, error) {
			if len(in.Command) == 0 {
				return nil, sandbox.Errorf(sandbox.Invalid, "command: [] holds no command")
			}
			r := sandbox.RunRequest{Commands: in.Command, Dir: in.Dir, Root: in.Root}
			if in.Stdin != nil {
				r.Stdin = []byte(*in.Stdin)
			}
			return s.start(ctx, c, r, in.runArgs)
		}),
	}
}
