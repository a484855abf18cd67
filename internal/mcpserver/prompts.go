package mcpserver

import (
	"context"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/prompts"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// addPrompts registers the prompts whose tools the server offers.
func (s *Server) addPrompts() {
	tools := prompts.Tools{Has: s.offers, Rename: s.renamer.text}
	for _, p := range prompts.All() {
		if !p.Offered(tools) {
			continue
		}
		s.mcp.AddPrompt(p.Definition, func(ctx context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			res, err := s.prompt(ctx, req, p, tools)
			s.log.Info("prompt", "prompt", p.Definition.Name, "error", sandbox.KindOf(err))
			return res, s.promptError(err)
		})
	}
}

// offers reports whether the server has a tool of that name.
func (s *Server) offers(name string) bool {
	return slices.ContainsFunc(s.offered(), func(t tool) bool { return t.name == name })
}

// prompt returns the messages of a prompt.
func (s *Server) prompt(ctx context.Context, req *mcp.GetPromptRequest, p prompts.Prompt, tools prompts.Tools) (*mcp.GetPromptResult, error) {
	id, known := auth.FromContext(ctx)
	if !known || !id.Can(auth.ScopeRun) {
		return nil, lacks(p.Definition.Name, auth.ScopeRun)
	}
	ctx, end, err := s.transport.Begin(ctx, id, req.Session.ID(), req.Extra)
	if err != nil {
		return nil, err
	}
	defer end()
	return p.Get(ctx, s.engine, id, tools, req.Params.Arguments)
}

// promptError converts an error to a protocol error. Every error that the caller can
// remedy is about an argument.
func (s *Server) promptError(err error) error {
	switch sandbox.KindOf(err) {
	case "":
		return nil
	case sandbox.NotFound, sandbox.Forbidden:
		err = sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "%s", err), "%s", sandbox.HintOf(err))
	}
	return s.protocolError("", err)
}

// hidePrompts removes Glovebox's prompts from prompts/list for a caller that cannot use
// them.
func hidePrompts(list *mcp.ListPromptsResult, id auth.Identity) {
	if id.Can(auth.ScopeRun) {
		return
	}
	list.Prompts = slices.DeleteFunc(list.Prompts, func(p *mcp.Prompt) bool {
		return slices.ContainsFunc(prompts.All(), func(ours prompts.Prompt) bool { return ours.Definition.Name == p.Name })
	})
}
