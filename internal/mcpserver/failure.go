package mcpserver

import (
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/profile"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// errInternal replaces an internal error, whose details are only for the
// operator. The local user is the operator, and gets the details.
var errInternal = sandbox.Errorf(sandbox.Internal, "the server's log says how")

// errorResult shows an error to the model: the argument, the fault and, if known,
// the remedy.
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

// profileResult encodes a profile's result.
func profileResult(r profile.Result) (*mcp.CallToolResult, error) {
	res := &mcp.CallToolResult{IsError: r.IsError}
	for _, text := range r.Texts {
		res.Content = append(res.Content, &mcp.TextContent{Text: text})
	}
	for _, image := range r.Images {
		res.Content = append(res.Content, &mcp.ImageContent{MIMEType: image.MIMEType, Data: image.Data})
	}
	if r.Structured != nil {
		b, err := json.Marshal(r.Structured)
		if err != nil {
			return nil, err
		}
		res.StructuredContent = json.RawMessage(b)
	}
	return res, nil
}

// failure shows an error to the model in the form that the profile defines.
func (s *Server) failure(err error) *mcp.CallToolResult {
	if s.opts.Profile == nil || s.opts.Profile.Failure == nil {
		return errorResult(err)
	}
	res, encodeErr := profileResult(s.opts.Profile.Failure(err))
	if encodeErr != nil {
		return errorResult(err)
	}
	res.IsError = true
	return res
}
