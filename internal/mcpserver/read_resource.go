package mcpserver

import (
	"context"
	"encoding/json"
	"net/url"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/ledger"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// The URI templates of the resources.
const (
	logsTemplate   = "sandbox://{id}/logs"
	fileTemplate   = "sandbox://{id}/files/{+path}"
	outputTemplate = "run://{id}/output"
)

// Size limits for one read of a resource, in bytes.
const (
	maxResourceFile   = 4 << 20
	maxResourceOutput = 1 << 20
)

// resource wraps a handler with the work that all reads have in common. It
// returns errors as protocol errors, because a resource has no other kind.
func (s *Server) resource(scope auth.Scope, read func(context.Context, sandbox.Principal, *url.URL) ([]*mcp.ResourceContents, error)) mcp.ResourceHandler {
	return func(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		uri := req.Params.URI
		id, ok := auth.FromContext(ctx)
		if !ok || !id.Reads(scope) {
			return nil, notFound(uri)
		}
		u, err := url.Parse(uri)
		if err != nil {
			return nil, notFound(uri)
		}
		ctx, end, err := s.transport.Begin(ctx, id, req.Session.ID(), req.Extra)
		if err != nil {
			return nil, s.protocolError(uri, err)
		}
		defer end()
		contents, err := read(ctx, id.Principal, u)
		if err == nil {
			err = grown(ctx, id.Principal, contents)
		}
		if err != nil {
			return nil, s.protocolError(uri, err)
		}
		return &mcp.ReadResourceResult{Contents: contents}, nil
	}
}

// counted counts the content that a handler read in the call's ledger.
func counted(read func(context.Context, sandbox.Principal, *url.URL) ([]*mcp.ResourceContents, error)) func(context.Context, sandbox.Principal, *url.URL) ([]*mcp.ResourceContents, error) {
	return func(ctx context.Context, p sandbox.Principal, u *url.URL) ([]*mcp.ResourceContents, error) {
		contents, err := read(ctx, p, u)
		if err != nil {
			return nil, err
		}
		size := 0
		for _, c := range contents {
			size += len(c.Text) + len(c.Blob)
		}
		// countedEngine has already counted the read itself.
		_, err = ledger.Of(ctx).Take(ctx, p, int64(size)*(ledger.AnswerCost-2)/ledger.AnswerCost)
		return contents, err
	}
}

// notFound is the protocol's error for a resource that does not exist. The SDK's
// own error cannot be encoded for every URI.
func notFound(uri string) error {
	data, err := json.Marshal(map[string]string{"uri": uri})
	if err != nil {
		data = nil
	}
	return &jsonrpc.Error{Code: mcp.CodeResourceNotFound, Message: "Resource not found", Data: data}
}

// protocolError converts an error to a protocol error by its kind.
func (s *Server) protocolError(uri string, err error) error {
	text := err.Error()
	if hint := sandbox.HintOf(err); hint != "" {
		text += "; " + s.renamer.text(hint)
	}
	switch kind := sandbox.KindOf(err); kind {
	case sandbox.NotFound:
		return notFound(uri)
	case sandbox.Invalid, sandbox.Unsupported, sandbox.Conflict:
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: text}
	case sandbox.Internal:
		s.log.Error("resource failed", "error", err)
		return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "internal error; the server's log says how"}
	default:
		return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: text}
	}
}
