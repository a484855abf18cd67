package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/approval"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/client"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/resultview"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/visits"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/trace"
)

// A tool is one MCP tool: its description for clients and its handler.
type tool struct {
	name        string
	title       string
	description string
	input       string // JSON Schema of the arguments
	output      string // JSON Schema of structuredContent, if there is one
	// untold leaves the output schema out of tools/list. Another tool has the
	// same schema, and the length of the whole list is bounded by a budget.
	untold bool
	// arguments are the names of the arguments. Nil for a profile's tool.
	arguments []string

	// main marks a tool that most conversations need; see [resultview.Meta]. long marks a tool
	// whose results a caller can ask to be long.
	main, long bool

	// scope is the scope that the caller must have.
	scope auth.Scope
	// These are MCP's hints. A readOnly tool changes nothing. A destructive tool
	// loses data that would otherwise stay, or weakens the isolation of a sandbox.
	// Changes in a sandbox alone are not destructive. Calling an idempotent tool
	// again with the same arguments has no further effect. An open tool starts or
	// feeds a program, which may use the sandbox's network.
	readOnly, destructive, idempotent, open bool

	// run handles a call. The model sees its error as a result with isError; see
	// [answer.Failure].
	run func(ctx context.Context, c call, args json.RawMessage) (*mcp.CallToolResult, error)
}

// A call is one call of a tool.
type call struct {
	principal sandbox.Principal
	identity  auth.Identity
	req       *mcp.CallToolRequest
	began     time.Time
	facts     *facts
}

// client returns the client of a call.
func (c call) client() client.Client { return clientOf(c.req.ClientInfo()) }

// clientOf returns the client with that clientInfo, which may be nil.
func clientOf(info *mcp.Implementation) client.Client {
	if info == nil {
		return client.Of("")
	}
	return client.Of(info.Name)
}

// firstLinks is the first version of the protocol that has links to resources in
// results.
const firstLinks = "2025-06-18"

// shaped returns a result in the form that a client passes on to its model. version is
// the version of the protocol that the client speaks.
func shaped(res *mcp.CallToolResult, to client.Client, version string) *mcp.CallToolResult {
	if res == nil {
		return nil
	}
	if version < firstLinks || to.LinksAsText {
		answer.WithoutLinks(res)
	}
	if to.TextOnly {
		res.StructuredContent = nil
	}
	picture := func(c mcp.Content) bool {
		_, ok := c.(*mcp.ImageContent)
		return ok
	}
	if to.ErrorsLosePictures && slices.ContainsFunc(res.Content, picture) {
		res.IsError = false
	}
	return res
}

// visitor returns the visitor of a call.
func (c call) visitor() visits.Visitor {
	v := visits.Visitor{Principal: c.principal}
	if c.req != nil && c.req.Session != nil {
		v.Session = c.req.Session.ID()
	}
	return v
}

// facts are what the log says about a call. A nil pointer keeps nothing.
type facts struct {
	sandbox, run string
	verdict      sandbox.VerdictCode
}

// named keeps the identifiers that the arguments of a call name. It ignores every
// other text, because callers choose the arguments.
func (f *facts) named(args map[string]any) {
	if id, _ := args["sandbox_id"].(string); f != nil && sandbox.ValidID(id) {
		f.sandbox = id
	}
	if id, _ := args["run_id"].(string); f != nil && sandbox.ValidRunID(id) {
		f.run = id
	}
}

// in keeps the sandbox of a call.
func (f *facts) in(sandboxID string) {
	if f != nil {
		f.sandbox = sandboxID
	}
}

// ran keeps the run of a call, and the verdict of a run that has finished.
func (f *facts) ran(r sandbox.Run) {
	if f == nil {
		return
	}
	f.run = r.ID
	if r.SandboxID != "" {
		f.sandbox = r.SandboxID
	}
	if r.Status == sandbox.RunFinished {
		f.verdict = r.Verdict.Code
	}
}

// definition returns the tool's entry for tools/list. internet says that sandboxes
// may reach every public address. names are the names of tools.
func (t tool) definition(internet bool, names *renamer) *mcp.Tool {
	openWorld := t.open && internet
	a := &mcp.ToolAnnotations{ReadOnlyHint: t.readOnly, OpenWorldHint: &openWorld}
	if !t.readOnly {
		a.DestructiveHint = &t.destructive
		a.IdempotentHint = t.idempotent
	}
	def := &mcp.Tool{
		Name:        names.name(t.name),
		Title:       t.title,
		Description: names.text(t.description),
		InputSchema: json.RawMessage(names.text(t.input)),
		Annotations: a,
	}
	def.Meta = resultview.Meta(t.name, t.main, t.long)
	if t.output != "" && !t.untold {
		def.OutputSchema = json.RawMessage(t.output)
	}
	return def
}

// handler wraps the tool with the work that all calls have in common: scopes, shutdown,
// recovery from panics, metrics, and the log. The log of a call has its principal,
// sandbox, run and verdict, but no text of arguments or output.
func (s *Server) handler(t tool) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (res *mcp.CallToolResult, _ error) {
		began := time.Now()
		ctx = trace.Watch(ctx)
		id, known := auth.FromContext(ctx)
		kind := sandbox.Kind("")
		about := &facts{}
		if s.opts.Profile == nil {
			defer func() { res = shaped(res, clientOf(req.ClientInfo()), req.ProtocolVersion()) }()
		}
		defer func() {
			// A panic in one call must not end the sandboxes of all principals.
			if p := recover(); p != nil {
				s.log.Error("tool panicked", "tool", t.name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				kind = sandbox.Internal
				res = s.failure(t, sandbox.Errorf(sandbox.Internal, "%s: a fault in the server", t.name))
			}
			if s.opts.Called != nil {
				s.opts.Called(ctx, t.name, kind, time.Since(began))
			}
			s.log.Info("tool", "tool", t.name, "principal", id.Principal, "sandbox", about.sandbox, "run", about.run,
				"verdict", about.verdict, "error", kind, "duration", time.Since(began))
		}()
		fail := func(err error) (*mcp.CallToolResult, error) {
			kind = sandbox.KindOf(err)
			if kind == sandbox.Internal && ctx.Err() != nil {
				// The client cancelled the call, or the server shuts down. That is no
				// fault, and an answer reaches nobody.
				err = sandbox.Errorf(sandbox.Unavailable, "the call was ended: %w", context.Cause(ctx))
				kind = sandbox.Unavailable
			}
			if kind == sandbox.Internal {
				s.log.Error("tool failed", "tool", t.name, "principal", id.Principal, "error", err)
				if id.Principal != sandbox.Local {
					err = errInternal
				}
			}
			return s.failure(t, err), nil
		}
		if !known {
			return fail(sandbox.Errorf(sandbox.Unauthenticated, "%s: nobody is signed in", t.name))
		}
		if !id.May(t.scope, t.readOnly) {
			return fail(lacks(s.renamer.name(t.name), t.scope))
		}
		ctx, end, err := s.transport.Begin(ctx, id, req.Session.ID(), req.Extra)
		if err != nil {
			return fail(err)
		}
		defer end()
		defer s.notices.Touch(id.Principal)
		ctx = trace.Continue(ctx, traceparent(req))
		c := call{principal: id.Principal, identity: id, req: req, began: time.Now(), facts: about}
		res, err = t.run(askable(ctx, c), c, req.Params.Arguments)
		if asks, ok := errors.AsType[*approval.Needed](err); ok {
			return asks.Result, nil
		}
		if err == nil {
			err = grown(ctx, id.Principal, res)
		}
		if err != nil {
			return fail(err)
		}
		if about.verdict != "" {
			s.notices.Waiting(id.Principal, about.run)(true)
		}
		if about.sandbox != "" {
			s.visits.Note(visits.Visitor{Principal: id.Principal, Session: req.Session.ID()}, about.sandbox, "")
		}
		return res, nil
	}
}

// lacks returns the error for a token without a scope that what needs.
func lacks(what string, scope auth.Scope) error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.Forbidden, "%s: this token lacks the scope %q", what, scope),
		"use a token that was created with that scope")
}

// traceparent returns the caller's position in its own trace. It is in the call's
// metadata, on any transport, or in the header of the call's request. The context
// is not used, because it may belong to a whole session.
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
