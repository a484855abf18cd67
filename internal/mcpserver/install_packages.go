package mcpserver

import (
	"context"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const installPackagesInput = `{"type":"object","properties":{` +
	`"packages":{"type":"array","items":{"type":"string"},"description":"like numpy==2.1"},` +
	`"language":{"type":"string","description":"python (default), javascript, or apt"},` +
	sandboxProperty + `,` + waitProperty + `,` + networkProperty +
	`},"required":["packages"]}`

func (s *Server) installPackages() tool {
	type arguments struct {
		Packages  []string        `json:"packages"`
		Language  string          `json:"language"`
		SandboxID string          `json:"sandbox_id"`
		Wait      *int            `json:"wait_seconds"`
		Network   sandbox.Network `json:"network"`
	}
	return tool{
		name:        "install_packages",
		title:       "Install packages",
		description: "Install packages for the sandbox's programs. Returns a run that lists what was installed.",
		input:       installPackagesInput,
		output:      runOutput,
		untold:      true,
		scope:       auth.ScopeRun,
		run: typed(installPackagesInput, func(ctx context.Context, c call, in arguments) (*mcp.CallToolResult, error) {
			if err := onlyNew(in.SandboxID, "", in.Network); err != nil {
				return nil, err
			}
			run, err := s.engine.Install(ctx, c.principal, sandbox.PackagesRequest{
				SandboxID: in.SandboxID, New: sandbox.CreateRequest{Network: in.Network}, Language: in.Language, Packages: in.Packages,
			})
			if err != nil {
				return nil, err
			}
			wait := s.opts.Patience
			if in.Wait != nil {
				wait = time.Duration(*in.Wait) * time.Second
			}
			return s.answer(ctx, c, run, wait, in.Wait == nil, 0)
		}),
	}
}
