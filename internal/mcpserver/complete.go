package mcpserver

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/complete"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/prompts"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// completer returns the sources of all suggestions.
func (s *Server) completer() complete.Completer {
	anyRun := func(sandbox.Run) bool { return true }
	return complete.Completer{Engine: s.engine, Sources: map[complete.Argument]complete.Source{
		{Ref: fileTemplate, Name: "id"}:   complete.Sandboxes(),
		{Ref: fileTemplate, Name: "path"}: complete.FilesOfSandbox("id"),
		{Ref: logsTemplate, Name: "id"}:   complete.Sandboxes(),
		{Ref: outputTemplate, Name: "id"}: complete.Runs(anyRun),

		{Ref: "analyse_csv", Name: "workspace"}:       complete.Workspaces(),
		{Ref: "analyse_csv", Name: "path"}:            complete.FilesOfWorkspace("workspace"),
		{Ref: "review_repository", Name: "workspace"}: complete.Workspaces(),
		{Ref: "review_repository", Name: "source"}:    complete.FilesOfWorkspace("workspace"),
		{Ref: "explain_failure", Name: "run_id"}:      complete.Runs(prompts.Failed),
	}}
}

// complete suggests values for prompts and resource templates.
func (s *Server) complete(ctx context.Context, req *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	id, ok := auth.FromContext(ctx)
	if !ok {
		return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{}}}, nil
	}
	ctx, end, err := s.transport.Begin(ctx, id, req.Session.ID(), req.Extra)
	if err != nil {
		return nil, s.protocolError("", err)
	}
	defer end()
	found, err := s.completer().Complete(ctx, id, req.Params)
	if err != nil {
		return nil, s.protocolError("", err)
	}
	return &mcp.CompleteResult{Completion: found}, nil
}
