package answer

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Problem is the structuredContent of an error. No run, sandbox or file has a
// field of these names. Clients check it against the tool's output schema, so no
// output schema of a tool requires a field.
type Problem struct {
	Kind     sandbox.Kind `json:"kind"`
	Message  string       `json:"message"`
	Argument string       `json:"argument,omitempty"` // the argument at fault
	Hint     string       `json:"hint,omitempty"`
	// RetryAfter is the time after which a retry may succeed. Zero: not known.
	RetryAfter int `json:"retry_after_seconds,omitempty"`
}

// Failure shows an error to programs and to the model: the argument, the fault
// and, if known, the remedy. arguments are the names of the tool's arguments,
// and rename gives the tools in a hint their names for the client.
func Failure(err error, arguments []string, rename func(string) string) *mcp.CallToolResult {
	p := Problem{
		Kind:       sandbox.KindOf(err),
		Message:    err.Error(),
		Argument:   argumentOf(err, arguments),
		Hint:       rename(sandbox.HintOf(err)),
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
	res, encodeErr := New(p, text)
	if encodeErr != nil { // a Problem is only text and numbers
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
