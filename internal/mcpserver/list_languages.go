package mcpserver

import (
	"context"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (s *Server) listLanguages() tool {
	type arguments struct {
		SandboxID string `json:"sandbox_id,omitempty" jsonschema:"default: a new one, kept while in use"`
		Image     string `json:"image,omitempty" jsonschema:"only without sandbox_id"`
	}
	type list struct {
		SandboxID string             `json:"sandbox_id"`
		Languages []sandbox.Language `json:"languages"`
	}
	return takes(tool{
		name:        "list_languages",
		title:       "List languages",
		description: "Returns a sandbox's languages, versions and notable packages.",
		scope:       auth.ScopeRun,
	}, nil, func(ctx context.Context, c call, in arguments) (*mcp.CallToolResult, error) {
		if err := onlyNew(in.SandboxID, in.Image, ""); err != nil {
			return nil, err
		}
		langs, id, err := s.engine.Languages(ctx, c.principal, in.SandboxID, sandbox.CreateRequest{Image: in.Image})
		if err != nil {
			return nil, err
		}
		c.facts.in(id)
		return answer.New(list{id, langs}, languagesText(id, langs))
	})
}

// languagesText returns the languages for models: first the available languages,
// one per line, and then the missing ones.
func languagesText(id string, langs []sandbox.Language) string {
	var there, missing strings.Builder
	for _, l := range langs {
		if l.Program == "" {
			fmt.Fprintf(&missing, "%s: %s\n", l.Name, l.Missing)
			continue
		}
		there.WriteString(strings.TrimSpace(l.Name + " " + l.Version)) // sh has no version
		if l.Contexts {
			there.WriteString(", with contexts")
		}
		if len(l.Packages) > 0 {
			names := make([]string, len(l.Packages))
			for i, p := range l.Packages {
				names[i] = p.Name + " " + p.Version
			}
			there.WriteString(": " + strings.Join(names, ", "))
		}
		there.WriteByte('\n')
	}
	text := "In " + id + ":\n" + there.String()
	if missing.Len() > 0 {
		text += "Not there:\n" + missing.String()
	}
	return strings.TrimSuffix(text, "\n")
}
