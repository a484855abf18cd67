package mcpserver

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (s *Server) listWorkspaces() tool {
	type arguments struct {
		Workspace *string `json:"workspace,omitempty" jsonschema:"measure this one now"`
	}
	type list struct {
		Workspaces []sandbox.Workspace `json:"workspaces"`
	}
	return takes(tool{
		name:        "list_workspaces",
		title:       "List workspaces",
		description: "Returns your workspaces, with sizes and quota.",
		scope:       auth.ScopeFiles,
		readOnly:    true,
	}, nil, func(ctx context.Context, c call, in arguments) (*mcp.CallToolResult, error) {
		var all []sandbox.Workspace
		var err error
		if in.Workspace != nil {
			all = make([]sandbox.Workspace, 1)
			all[0], err = s.engine.Workspace(ctx, c.principal, *in.Workspace)
		} else {
			all, err = s.engine.Workspaces(ctx, c.principal)
		}
		if err != nil {
			return nil, err
		}
		if all == nil {
			all = []sandbox.Workspace{}
		}
		lines := make([]string, len(all))
		for i, w := range all {
			lines[i] = workspaceLine(w)
		}
		if len(lines) == 0 {
			lines = []string{"There are no workspaces."}
		}
		return answer.New(list{all}, strings.Join(lines, "\n"))
	})
}

// workspaceLine returns a workspace in one line, for models.
func workspaceLine(w sandbox.Workspace) string {
	line := fmt.Sprintf("%q: %s in %d files", w.Name, sandbox.FormatBytes(w.Usage.Bytes), w.Usage.Files)
	if w.Quota.Bytes > 0 {
		line += ", of at most " + sandbox.FormatBytes(w.Quota.Bytes)
	}
	if w.InUse {
		return line + ", in use"
	}
	return line + ", last used " + w.Used.UTC().Format(time.RFC3339)
}

func (s *Server) deleteWorkspace() tool {
	type arguments struct {
		Workspace string `json:"workspace"`
	}
	type deleted struct {
		Workspace string `json:"workspace"`
	}
	return takes(tool{
		name:        "delete_workspace",
		title:       "Delete a workspace",
		description: "Delete an unused workspace with all its files.",
		scope:       auth.ScopeFiles,
		destructive: true,
	}, nil, func(ctx context.Context, c call, in arguments) (*mcp.CallToolResult, error) {
		if err := s.engine.DeleteWorkspace(ctx, c.principal, in.Workspace); err != nil {
			return nil, err
		}
		return answer.New(deleted(in), fmt.Sprintf("deleted workspace %q", in.Workspace))
	})
}
