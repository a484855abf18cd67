package answer

import (
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Failure shows an error to programs and to the model: the argument, the fault
// and, if known, the remedy. arguments are the names of the tool's arguments,
// and rename gives the tools in a hint their names for the client. The
// structuredContent is a [sandbox.Problem]. No run, sandbox or file has a field of
// its names. Clients check it against the tool's output schema, so no output schema
// of a tool requires a field.
func Failure(err error, arguments []string, rename func(string) string) *mcp.CallToolResult {
	p := sandbox.ProblemOf(err, arguments)
	p.Hint = rename(p.Hint)
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
	res, encodeErr := New(p, text)
	if encodeErr != nil { // a sandbox.Problem is only text and numbers
		res = &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
	}
	res.IsError = true
	return res
}
