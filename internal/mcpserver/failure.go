package mcpserver

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/profile"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// errInternal replaces an internal error, whose details are only for the
// operator. The local user is the operator, and gets the details.
var errInternal = sandbox.Errorf(sandbox.Internal, "the server's log says how")

// A problem is the structuredContent of an error. No run, sandbox or file has a
// field of these names. Clients check it against the tool's output schema, so no
// output schema of a tool requires a field.
type problem struct {
	Kind     sandbox.Kind `json:"kind"`
	Message  string       `json:"message"`
	Argument string       `json:"argument,omitempty"` // the argument at fault
	Hint     string       `json:"hint,omitempty"`
	// RetryAfter is the time after which a retry may succeed. Zero: not known.
	RetryAfter int `json:"retry_after_seconds,omitempty"`
}

// errorResult shows an error to programs and to the model: the argument, the fault
// and, if known, the remedy. arguments are the names of the tool's arguments.
func errorResult(err error, arguments []string) *mcp.CallToolResult {
	p := problem{
		Kind:       sandbox.KindOf(err),
		Message:    err.Error(),
		Argument:   argumentOf(err, arguments),
		Hint:       sandbox.HintOf(err),
		RetryAfter: int(math.Ceil(sandbox.RetryAfterOf(err).Seconds())),
	}
	if p.Kind == sandbox.Internal {
		p.Message = "internal error: the request was fine, the server failed: " + p.Message
	}
	if p.Hint == "" && p.RetryAfter > 0 {
		p.Hint = fmt.Sprintf("try again in %v", time.Duration(p.RetryAfter)*time.Second)
	}
	text := p.Message
	if p.Hint != "" {
		text += "\nhint: " + p.Hint
	}
	res, encodeErr := result(p, text)
	if encodeErr != nil { // a problem is only text and numbers
		res = &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
	}
	res.IsError = true
	return res
}

// argumentOf returns the argument that an error names, or "". An error about an
// argument begins with its name, after the operations that failed, which are
// phrases of several words.
func argumentOf(err error, arguments []string) string {
	for rest := err.Error(); ; {
		first, after, ok := strings.Cut(rest, ": ")
		if !ok {
			return ""
		}
		if !strings.Contains(first, " ") {
			name, _, _ := strings.Cut(first, ".") // env.NAME
			name, _, _ = strings.Cut(name, "[")   // packages[0]
			for _, unit := range []string{"", "_mb", "_seconds"} {
				if slices.Contains(arguments, name+unit) {
					return name + unit
				}
			}
			return ""
		}
		rest = after
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

// failure shows an error to the model, in the form that the profile defines. The
// replaced servers' errors have no structuredContent, and neither have a profile's.
func (s *Server) failure(t tool, err error) *mcp.CallToolResult {
	res := errorResult(err, t.arguments)
	p := s.opts.Profile
	if p == nil {
		return res
	}
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
