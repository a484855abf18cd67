package mcpserver

import (
	"context"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/snapshots"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (s *Server) createSandbox() tool {
	type arguments struct {
		Name      string            `json:"name,omitempty"`
		Image     string            `json:"image,omitempty" jsonschema:"default: the server's"`
		CPUs      float64           `json:"cpus,omitempty" jsonschema:"default 1"`
		MemoryMB  int64             `json:"memory_mb,omitempty" jsonschema:"default 512"`
		DiskMB    int64             `json:"disk_mb,omitempty" jsonschema:"default 1024"`
		Env       map[string]string `json:"env,omitempty"`
		Workspace string            `json:"workspace,omitempty" jsonschema:"name of the files kept at /data"`
		Snapshot  string            `json:"snapshot,omitempty" jsonschema:"start from this one"`
		Network   sandbox.Network   `json:"network,omitempty" jsonschema:"none, internet, or hosts like pypi.org:443,*.example.com"`
		Idle      int64             `json:"idle_seconds,omitempty" jsonschema:"stop if unused so long; default 600"`
		Lifetime  int64             `json:"lifetime_seconds,omitempty" jsonschema:"default 86400"`
	}
	return takes(tool{
		name:  "create_sandbox",
		title: "Create a sandbox",
		description: "Make a sandbox with your limits; otherwise run_code makes one. " +
			"Returns its sandbox_id and a receipt: how limits are enforced.",
		output: sandboxOutput,
		scope:  auth.ScopeRun,
	}, limits{
		"cpus":             atLeast(0.05),
		"memory_mb":        atLeast(1),
		"disk_mb":          atLeast(1),
		"idle_seconds":     atLeast(1),
		"lifetime_seconds": atLeast(1),
	}, func(ctx context.Context, c call, in arguments) (*mcp.CallToolResult, error) {
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
		req := sandbox.CreateRequest{
			Name:    in.Name,
			Image:   in.Image,
			Env:     in.Env,
			Network: in.Network,

			Workspace: in.Workspace,
			Snapshot:  in.Snapshot,
			Progress:  progress,

			Limits: sandbox.Limits{
				CPUs:        in.CPUs,
				MemoryBytes: memory,
				DiskBytes:   disk,
				Idle:        idle,
				Lifetime:    lifetime,
			},
		}
		if err := snapshots.Complete(ctx, s.engine, c.principal, &req); err != nil {
			return nil, err
		}
		sb, err := s.engine.Create(ctx, c.principal, req)
		if err != nil {
			return nil, err
		}
		c.facts.in(sb.ID)
		r := newSandboxResult(sb)
		return answer.New(r, r.text())
	})
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
