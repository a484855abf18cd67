package mcpserver

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (s *Server) installPackages() tool {
	type arguments struct {
		Packages  []string        `json:"packages" jsonschema:"like numpy==2.1"`
		Language  string          `json:"language,omitempty" jsonschema:"python (default), javascript, or apt"`
		SandboxID string          `json:"sandbox_id,omitempty" jsonschema:"default: a new one, kept while in use"`
		Wait      *int            `json:"wait_seconds,omitempty" jsonschema:"return after this long; the run goes on, and takes send_input"`
		Network   sandbox.Network `json:"network,omitempty" jsonschema:"none, internet, or hosts like pypi.org:443,*.example.com"`
	}
	return takes(tool{
		name:        "install_packages",
		title:       "Install packages",
		description: "Install packages. Returns a run that lists them.",
		output:      runOutput,
		untold:      true,
		scope:       auth.ScopeRun,
		open:        true,
	}, limits{"wait_seconds": between(0, 600)}, func(ctx context.Context, c call, in arguments) (*mcp.CallToolResult, error) {
		if err := onlyNew(in.SandboxID, "", in.Network); err != nil {
			return nil, err
		}
		run, err := s.engine.Install(ctx, c.principal, sandbox.PackagesRequest{
			SandboxID: in.SandboxID, New: sandbox.CreateRequest{Network: in.Network}, Language: in.Language, Packages: in.Packages,
		})
		if err != nil {
			return nil, err
		}
		c.facts.ran(run)
		return s.answer(ctx, c, run, s.patience(c, in.Wait), false, 0)
	})
}
