// Package prompts has the prompts that a person can choose in an MCP client: texts that
// ask the model for a task, with the right tools and rules.
//
// Only package mcpserver imports it, for the native tools; profiles have no prompts.
// A prompt reads runs and workspaces through its [Engine], and changes nothing. The
// package has no state.
//
// Each prompt's first message is complete in itself, because some clients pass only that
// message to the model. Names of tools are renamed in the package's own sentences, and
// never in arguments or in the output of programs.
package prompts

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Engine is the part of package engine that prompts use.
type Engine interface {
	LastRuns(ctx context.Context, p sandbox.Principal, limit int) ([]sandbox.ListedRun, error)
	Output(ctx context.Context, p sandbox.Principal, runID string, budget int) (sandbox.Output, error)
	Workspaces(ctx context.Context, p sandbox.Principal) ([]sandbox.Workspace, error)
}

// A Prompt is one prompt.
type Prompt struct {
	Definition *mcp.Prompt
	// Tools are the tools that the prompt's text needs. A server without one of them
	// does not offer the prompt.
	Tools []string
	// messages returns the messages. The arguments are known, and the required ones
	// are there.
	messages func(ctx context.Context, a asked) ([]*mcp.PromptMessage, error)
}

// asked is one request for a prompt.
type asked struct {
	engine Engine
	id     auth.Identity
	tools  Tools
	given  map[string]string
}

// Tools are the tools of a server.
type Tools struct {
	// Has reports whether the server offers a tool.
	Has func(name string) bool
	// Rename returns a sentence with the names that the tools have for clients.
	Rename func(text string) string
}

// All returns the prompts, in the order of the documentation.
func All() []Prompt { return []Prompt{analyseCSV(), reviewRepository(), explainFailure()} }

// Offered reports whether a server with those tools can offer the prompt.
func (p Prompt) Offered(t Tools) bool {
	return !slices.ContainsFunc(p.Tools, func(name string) bool { return !t.Has(name) })
}

// maxArgument bounds one argument, in bytes.
const maxArgument = 2000

// Get returns the messages of a prompt. An argument that is unknown, missing or unusable
// is an error of kind Invalid that names it.
func (p Prompt) Get(ctx context.Context, e Engine, id auth.Identity, t Tools, given map[string]string) (*mcp.GetPromptResult, error) {
	var names []string
	for _, a := range p.Definition.Arguments {
		names = append(names, a.Name)
		if a.Required && strings.TrimSpace(given[a.Name]) == "" {
			return nil, sandbox.Errorf(sandbox.Invalid, "%s: it is missing: %s", a.Name, a.Description)
		}
	}
	for name, value := range given {
		if !slices.Contains(names, name) {
			return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "arguments: there is no argument %.100q", name),
				"the arguments are %s", strings.Join(names, ", "))
		}
		if len(value) > maxArgument {
			return nil, sandbox.Errorf(sandbox.Invalid, "%s: it has %d bytes, and %d are the most", name, len(value), maxArgument)
		}
		if strings.ContainsFunc(value, unicode.IsControl) {
			return nil, sandbox.Errorf(sandbox.Invalid, "%s: it has control characters, such as the end of a line", name)
		}
	}
	messages, err := p.messages(ctx, asked{engine: e, id: id, tools: t, given: given})
	if err != nil {
		return nil, err
	}
	return &mcp.GetPromptResult{Description: p.Definition.Description, Messages: messages}, nil
}

// workspace returns the words for the workspace of a request, or "". It must exist.
func (a asked) workspace(ctx context.Context) (string, error) {
	name := a.given["workspace"]
	if name == "" {
		return "", nil
	}
	if a.id.Can(auth.ScopeFiles) {
		all, err := a.engine.Workspaces(ctx, a.id.Principal)
		if err != nil {
			return "", err
		}
		if !slices.ContainsFunc(all, func(w sandbox.Workspace) bool { return w.Name == name }) {
			return "", sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "workspace: there is no workspace %q", name),
				"leave it out, or complete the argument to see the workspaces")
		}
	}
	return fmt.Sprintf(" in the workspace %q", name), nil
}

// A text is the text of a message.
type text struct {
	strings.Builder
	rename func(string) string
}

// say adds a sentence of this package. The names of tools in format are renamed, and
// the values are not.
func (t *text) say(format string, values ...any) {
	fmt.Fprintf(t, t.rename(format), values...)
}

// fence adds untrusted text between lines that it cannot contain.
func (t *text) fence(content string) {
	mark := "```"
	for strings.Contains(content, mark) {
		mark += "`"
	}
	t.WriteString(mark + "\n" + strings.TrimSuffix(content, "\n") + "\n" + mark + "\n")
}

// message returns the text as a message of the user.
func (t *text) message() *mcp.PromptMessage {
	return &mcp.PromptMessage{Role: "user", Content: &mcp.TextContent{Text: strings.TrimSuffix(t.String(), "\n")}}
}
