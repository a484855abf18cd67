package mcpserver

import (
	"context"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const createSandboxInput = `{"type":"object","properties":{` +
	`"name":{"type":"string"},` +
	`"image":{"type":"string","description":"default: the server's"},` +
	`"cpus":{"type":"number","minimum":0.05,"description":"default 1"},` +
	`"memory_mb":{"type":"integer","minimum":1,"description":"default 512"},` +
	`"disk_mb":{"type":"integer","minimum":1,"description":"default 1024"},` +
	envProperty + `,` + workspaceProperty + `,` + networkProperty + `,` +
	`"idle_seconds":{"type":"integer","minimum":1,"description":"stop after this long without a run; default 600"},` +
	`"lifetime_seconds":{"type":"integer","minimum":1,"description":"default 86400"}` +
	`}}`

func (s *Server) createSandbox() tool {
	type arguments struct {
		Name     string            `json:"name"`
		Image    string            `json:"image"`
		CPUs     float64           `json:"cpus"`
		MemoryMB int64             `json:"memory_mb"`
		DiskMB   int64             `json:"disk_mb"`
		Env      map[string]string `json:"env"`
		Network  sandbox.Network   `json:"network"`

		Workspace string `json:"workspace"`

		Idle     int64 `json:"idle_seconds"`
		Lifetime int64 `json:"lifetime_seconds"`
	}
	return tool{
		name:  "create_sandbox",
		title: "Create a sandbox",
		description: "Make a sandbox with limits or a name of your choice; otherwise run_code and run_command make one. " +
			"Returns its sandbox_id and a receipt: how each limit is enforced.",
		input:  createSandboxInput,
		output: sandboxOutput,
		scope:  auth.ScopeRun,
		run: typed(createSandboxInput, func(ctx context.Context, c call, in arguments) (*mcp.CallToolResult, error) {
			memory, err := megabytes("memory_mb", in.MemoryMB)
			if err != nil {
				return nil, err
			}
			disk, err := megabytes("disk_mb", in.DiskMB)
			if err != nil {
				return nil, err
			}
			idle, err := seconds("idle_seconds", in.Idle)
			if err != nil {
				return nil, err
			}
			lifetime, err := seconds("lifetime_seconds", in.Lifetime)
			if err != nil {
				return nil, err
			}
			progress, told := s.reportFetch(ctx, c, in.Image)
			defer told()
			sb, err := s.engine.Create(ctx, c.principal, sandbox.CreateRequest{
				Name:    in.Name,
				Image:   in.Image,
				Env:     in.Env,
				Network: in.Network,

				Workspace: in.Workspace,
				Progress:  progress,

				Limits: sandbox.Limits{
					CPUs:        in.CPUs,
					MemoryBytes: memory,
					DiskBytes:   disk,
					Idle:        idle,
					Lifetime:    lifetime,
				},
			})
			if err != nil {
				return nil, err
			}
			r := newSandboxResult(sb)
			return result(r, r.text())
		}),
	}
}

// megabytes and seconds convert arguments, and refuse values that would overflow.

func megabytes(name string, n int64) (int64, error) {
	const most = 1 << 40 // an exabyte
	if n > most {
		return 0, sandbox.Errorf(sandbox.Invalid, "%s: %d is beyond any machine", name, n)
	}
	return n << 20, nil
}

func seconds(name string, n int64) (time.Duration, error) {
	const most = 10 * 365 * 24 * 3600
	if n > most {
		return 0, sandbox.Errorf(sandbox.Invalid, "%s: %d is more than ten years", name, n)
	}
	return time.Duration(n) * time.Second, nil
}
