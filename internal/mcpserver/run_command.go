package mcpserver

import (
	"context"
	"encoding/json"
	"maps"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

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
		Command commands `json:"command" jsonschema:"for sh; several run in order until one fails"`
		Dir     string   `json:"cwd,omitempty" jsonschema:"default /data"`
		Stdin   *string  `json:"stdin,omitempty"`
		Root    bool     `json:"root,omitempty" jsonschema:"run as root of the sandbox"`
		runArgs
	}
	commandLimits := maps.Clone(runLimits)
	commandLimits["command"] = textOrList
	return takes(tool{
		name:        "run_command",
		title:       "Run shell commands",
		description: "Run shell commands in a sandbox. Returns as run_code does.",
		output:      runOutput,
		untold:      true,
		main:        true,
		long:        true,
		scope:       auth.ScopeRun,
		open:        true,
	}, commandLimits, func(ctx context.Context, c call, in arguments) (*mcp.CallToolResult, error) {
		if len(in.Command) == 0 {
			return nil, sandbox.Errorf(sandbox.Invalid, "command: [] holds no command")
		}
		r := sandbox.RunRequest{Commands: in.Command, Dir: in.Dir, Root: in.Root}
		if in.Stdin != nil {
			r.Stdin = []byte(*in.Stdin)
		}
		return s.start(ctx, c, r, in.runArgs)
	})
}
