package mcpserver

import (
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/advice"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/profile"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// errInternal replaces an internal error, whose details are only for the
// operator. The local user is the operator, and gets the details.
var errInternal = sandbox.Errorf(sandbox.Internal, "the server's log says how")

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

// failure shows an error to the model, in the form that the profile defines. The
// replaced servers' errors have no structuredContent, and neither have a profile's.
func (s *Server) failure(t tool, err error) *mcp.CallToolResult {
	p := s.opts.Profile
	if p == nil {
		return answer.Failure(advice.Error(err), t.arguments, s.renamer.text)
	}
	res := answer.Failure(err, t.arguments, s.renamer.text)
	if p.Failure != nil {
		if theirs, encodeErr := profileResult(p.Failure(err)); encodeErr == nil {
			res = theirs
		}
	} else {
		res.StructuredContent = nil
	}
	res.IsError = true
	return res
}
