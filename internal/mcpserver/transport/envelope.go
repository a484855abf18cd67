package transport

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Bounds on what a server repeats in answers and notifications, in bytes.
const (
	maxID     = 1 << 10 // of an id, and of a progress token
	maxMethod = 256
	maxName   = 8 << 10 // of a tool, a prompt or a URI
)

// An envelope describes the messages of a body, as the SDK reads them: package
// encoding/json would also take a key in capital letters for one in small letters.
type envelope struct {
	calls, notes int
	method       string        // of a single request, else ""
	id           jsonrpc.ID    // of a single call
	cancels      *cancellation // of a single notifications/cancelled, else nil
}

// readEnvelope reads the envelope of a body. Messages that are no JSON-RPC count as
// calls; the SDK refuses them. The error is for the client.
func readEnvelope(body []byte) (e envelope, _ error) {
	messages := []json.RawMessage{body}
	single := true
	if trimmed := bytes.TrimLeft(body, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '[' {
		single = false
		if err := json.Unmarshal(body, &messages); err != nil {
			messages = nil
		}
	}
	for _, text := range messages {
		m, err := jsonrpc.DecodeMessage(text)
		req, ok := m.(*jsonrpc.Request)
		if err != nil || !ok {
			e.calls++
			continue
		}
		if id, ok := req.ID.Raw().(string); ok && len(id) > maxID {
			return e, fmt.Errorf("the id has more than %d bytes", maxID)
		}
		if len(req.Method) > maxMethod {
			return e, fmt.Errorf("the method has more than %d bytes", maxMethod)
		}
		if req.IsCall() {
			e.calls++
		} else {
			e.notes++
		}
		if single {
			e.method, e.id = req.Method, req.ID
			if what, ok := cancellationOf(req); ok {
				e.cancels = &what
			}
		}
	}
	return e, nil
}

// boundNames refuses requests for a tool, prompt or resource with a long name, which
// the SDK would repeat in its answer.
func boundNames(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		var name string
		switch p := req.GetParams().(type) {
		case *mcp.CallToolParamsRaw:
			name = p.Name
		case *mcp.GetPromptParams:
			name = p.Name
		case *mcp.ReadResourceParams:
			name = p.URI
		case *mcp.SubscribeParams:
			name = p.URI
		case *mcp.UnsubscribeParams:
			name = p.URI
		}
		if len(name) > maxName {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("the name has more than %d bytes", maxName)}
		}
		return next(ctx, method, req)
	}
}

// ProgressToken returns the token of a call that wants progress, or nil. Each
// notification repeats it, so a long one is ignored.
func ProgressToken(req *mcp.CallToolRequest) any {
	token := req.Params.GetProgressToken()
	if text, ok := token.(string); ok && len(text) > maxID {
		return nil
	}
	return token
}

// sendable repairs errors of the SDK with invalid JSON as data. Such an error
// cannot be sent, and would end the whole session.
func sendable(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		var wire *jsonrpc.Error
		if errors.As(err, &wire) && len(wire.Data) > 0 && !json.Valid(wire.Data) {
			return nil, &jsonrpc.Error{Code: wire.Code, Message: wire.Message}
		}
		return res, err
	}
}
