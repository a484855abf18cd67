package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/trace"
)

// A tool is one MCP tool: what clients are told of it, and what it does.
type tool struct {
	name        string
	title       string
	description string
	input       string // JSON Schema of the arguments
	output      string // JSON Schema of structuredContent, if there is one
	// untold keeps the output's schema from clients, who are told it with
	// another tool: all that they are told has a budget.
	untold bool

	// scope is what the caller must be allowed.
	scope auth.Scope
	// The hints of MCP: readOnly tools change nothing; destructive ones may
	// undo or overwrite something; calling an idempotent one again with the
	// same arguments does no more.
	readOnly, destructive, idempotent bool

	// run handles a call. Its error is shown to the model as a result with
	// isError; see [errorResult].
	run func(ctx context.Context, c call, args json.RawMessage) (*mcp.CallToolResult, error)
}

// A call is one call of a tool.
type call struct {
	principal sandbox.Principal
	req       *mcp.CallToolRequest
	began     time.Time
}

// typed returns a handler that decodes arguments into an In by the input
// schema, which is a constant: one that does not parse is a fault of ours that
// any test shows.
func typed[In any](input string, h func(ctx context.Context, c call, in In) (*mcp.CallToolResult, error)) func(context.Context, call, json.RawMessage) (*mcp.CallToolResult, error) {
	var s schema
	if err := json.Unmarshal([]byte(input), &s); err != nil {
		panic(fmt.Sprintf("mcpserver: input schema: %v", err))
	}
	return func(ctx context.Context, c call, args json.RawMessage) (*mcp.CallToolResult, error) {
		var in In
		if err := s.decode(args, &in); err != nil {
			return nil, err
		}
		return h(ctx, c, in)
	}
}

// definition is what tools/list says of the tool.
func (t tool) definition() *mcp.Tool {
	closedWorld := false
	a := &mcp.ToolAnnotations{ReadOnlyHint: t.readOnly, OpenWorldHint: &closedWorld}
	if !t.readOnly {
		a.DestructiveHint = &t.destructive
		a.IdempotentHint = t.idempotent
	}
	def := &mcp.Tool{
		Name:        t.name,
		Title:       t.title,
		Description: t.description,
		InputSchema: json.RawMessage(t.input),
		Annotations: a,
	}
	if t.output != "" && !t.untold {
		def.OutputSchema = json.RawMessage(t.output)
	}
	return def
}

// handler wraps the tool with what every call has in common: who asks, what
// they may do, shutdown, faults of ours, and the log, which never has
// arguments or output in it.
func (s *Server) handler(t tool) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (res *mcp.CallToolResult, _ error) {
		began := time.Now()
		id, known := auth.FromContext(ctx)
		kind := sandbox.Kind("")
		defer func() {
			// A fault in one call must not end everybody's sandboxes.
			if p := recover(); p != nil {
				s.log.Error("tool panicked", "tool", t.name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				kind = sandbox.Internal
				res = s.failure(sandbox.Errorf(sandbox.Internal, "%s: a fault in the server", t.name))
			}
			s.log.Info("tool", "tool", t.name, "principal", id.Principal, "error", kind, "duration", time.Since(began))
		}()
		fail := func(err error) (*mcp.CallToolResult, error) {
			kind = sandbox.KindOf(err)
			if kind == sandbox.Internal {
				s.log.Error("tool failed", "tool", t.name, "principal", id.Principal, "error", err)
				if id.Principal != sandbox.Local {
					err = errInternal
				}
			}
			return s.failure(err), nil
		}
		if !known {
			return fail(sandbox.Errorf(sandbox.Unauthenticated, "%s: nobody is signed in", t.name))
		}
		if !id.Can(t.scope) {
			return fail(sandbox.WithHint(
				sandbox.Errorf(sandbox.Unsupported, "%s: this token lacks the scope %q", t.name, t.scope),
				"use a token that was created with that scope"))
		}
		ctx, end, err := s.begin(ctx, req.Session.ID(), id)
		if err != nil {
			return fail(err)
		}
		defer end()
		ctx, leave := s.ledgers.enter(ctx, req.Extra)
		defer leave()
		ctx = trace.Continue(ctx, traceparent(req))
		res, err = t.run(ctx, call{principal: id.Principal, req: req, began: time.Now()}, req.Params.Arguments)
		if err == nil {
			err = ledgerOf(ctx).grown(ctx, id.Principal, res)
		}
		if err != nil {
			return fail(err)
		}
		return res, nil
	}
}

// traceparent returns where in a trace of its own the caller is: by the metadata
// of the call, which any transport has, or by the header of its request. The
// context may be that of a whole session, and is not asked.
func traceparent(req *mcp.CallToolRequest) string {
	if text, ok := req.Params.Meta["traceparent"].(string); ok {
		return text
	}
	if req.Extra != nil {
		if parent := req.Extra.Header.Values("Traceparent"); len(parent) == 1 {
			return parent[0]
		}
	}
	return ""
}

// errInternal stands for what went wrong inside the server, which is the
// operator's to read. The local user is the operator.
var errInternal = sandbox.Errorf(sandbox.Internal, "the server's log says how")

// errorResult shows an error to the model: which argument, what is wrong with
// it, and the remedy where there is one.
func errorResult(err error) *mcp.CallToolResult {
	text := err.Error()
	if sandbox.KindOf(err) == sandbox.Internal {
		text = "internal error: the request was fine, the server failed: " + text
	}
	if hint := sandbox.HintOf(err); hint != "" {
		text += "\nhint: " + hint
	}
	return &mcp.CallToolResult{
		IsError: true,
		Content: []mcp.Content{&mcp.TextContent{Text: text}},
	}
}

// result shows v to programs and text to models.
func result(v any, text string) (*mcp.CallToolResult, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode result: %w", err)
	}
	return &mcp.CallToolResult{
		Content:           []mcp.Content{&mcp.TextContent{Text: text}},
		StructuredContent: json.RawMessage(b),
	}, nil
}
