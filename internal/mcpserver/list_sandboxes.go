package mcpserver

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const listSandboxesOutput = `{"type":"object","properties":{"sandboxes":{"type":"array","items":{"type":"object"}},"stopped":{"type":"integer"},"unlisted":{"type":"integer"}}}`

// maxListed is the most sandboxes that an answer lists.
const maxListed = 50

func (s *Server) listSandboxes() tool {
	type arguments struct {
		All bool `json:"all,omitempty" jsonschema:"stopped ones, too"`
	}
	// Stopped counts the stopped sandboxes, listed or not. Unlisted counts the
	// sandboxes of the requested states that are beyond the bound.
	type list struct {
		Sandboxes []sandboxResult `json:"sandboxes"`
		Stopped   int             `json:"stopped,omitempty"`
		Unlisted  int             `json:"unlisted,omitempty"`
		NextStep  string          `json:"next_step,omitempty"`
	}
	return takes(tool{
		name:        "list_sandboxes",
		title:       "List sandboxes",
		description: "Returns your live sandboxes, this session's and the last used first.",
		output:      listSandboxesOutput,
		scope:       auth.ScopeRun,
		readOnly:    true,
	}, nil, func(ctx context.Context, c call, in arguments) (*mcp.CallToolResult, error) {
		sbs, err := s.engine.List(ctx, c.principal)
		if err != nil {
			return nil, err
		}
		out := list{Sandboxes: []sandboxResult{}}
		for _, sb := range sbs {
			if sb.State == sandbox.Stopped {
				out.Stopped++
			}
		}
		if !in.All {
			sbs = slices.DeleteFunc(sbs, func(sb sandbox.Sandbox) bool { return sb.State == sandbox.Stopped })
		}
		s.visits.Sort(sbs, c.visitor())
		var b strings.Builder
		for i, sb := range sbs {
			if i == maxListed {
				out.Unlisted = len(sbs) - i
				break
			}
			r := newSandboxResult(sb)
			r.Receipt = nil
			out.Sandboxes = append(out.Sandboxes, r)
			b.WriteString(r.line() + "\n")
		}
		switch {
		case len(sbs) == 0 && out.Stopped > 0:
			b.WriteString("There are no live sandboxes.\n")
		case len(sbs) == 0:
			b.WriteString("There are no sandboxes.\n")
		case out.Unlisted > 0:
			fmt.Fprintf(&b, "%d more are not listed.\n", out.Unlisted)
		}
		if !in.All && out.Stopped > 0 {
			out.NextStep = "all=true lists the stopped ones, too"
			fmt.Fprintf(&b, "Not listed: %d stopped; all=true lists them.\n", out.Stopped)
		}
		return answer.New(out, strings.TrimSuffix(b.String(), "\n"))
	})
}
