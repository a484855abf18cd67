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
		Service bool     `json:"service,omitempty" jsonschema:"for servers: runs as long as the sandbox; returns once ready"`
		Name    string   `json:"name,omitempty" jsonschema:"of the service"`
		Restart string   `json:"restart,omitempty"`
		Ready   string   `json:"ready,omitempty" jsonschema:"port:8000, output:REGEX or command:CMD; within timeout_seconds"`
		Wake    string   `json:"wake,omitempty" jsonschema:"pause it while unused; requests to its ports wake it"`
		runArgs
	}
	commandLimits := maps.Clone(runLimits)
	commandLimits["command"] = textOrList
	commandLimits["restart"] = oneOf("never", "on-failure", "always")
	commandLimits["wake"] = oneOf("request")
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
		if !in.Service {
			for _, a := range []struct{ name, value string }{{"name", in.Name}, {"restart", in.Restart}, {"ready", in.Ready}, {"wake", in.Wake}} {
				if a.value != "" {
					return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "%s: it belongs to a service", a.name), "set service to true, or leave it out")
				}
			}
			return s.start(ctx, c, r, in.runArgs)
		}
		if err := in.timeout(&r); err != nil {
			return nil, err
		}
		if r.Timeout == sandbox.Forever { // what every service has
			r.Timeout = 0
		}
		ready, err := sandbox.ParseReady(in.Ready, r.Timeout)
		if err != nil {
			return nil, err
		}
		if ready == nil && r.Timeout != 0 {
			return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "timeout_seconds: a service has none, except for ready"), "leave it out")
		}
		r.Service = &sandbox.ServiceRequest{Name: in.Name, Restart: sandbox.RestartPolicy(in.Restart), Ready: ready, Wake: sandbox.WakePolicy(in.Wake)}
		return s.start(ctx, c, r, in.runArgs)
	})
}
