package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/ledger"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/task"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// grown takes the memory that JSON needs beyond [ledger.AnswerCost], which assumes
// plain text: JSON may take six bytes for one. Callers call it when the answer is
// complete and not encoded yet.
func grown(ctx context.Context, p sandbox.Principal, res any) error {
	var growth int64
	if t, ok := res.(*task.Result); ok && t.Result != nil {
		res = t.Result
	}
	switch res := res.(type) {
	case *mcp.CallToolResult:
		for _, c := range res.Content {
			if text, ok := c.(*mcp.TextContent); ok {
				growth += textCopies * ledger.JSONGrowth(text.Text)
			}
		}
		if data, ok := res.StructuredContent.(json.RawMessage); ok {
			growth += structuredCopies * 5 * int64(bytes.Count(data, []byte(`\u`)))
		}
	case []*mcp.ResourceContents:
		for _, c := range res {
			growth += textCopies * ledger.JSONGrowth(c.Text)
		}
	}
	if growth < grownLeast {
		return nil
	}
	return ledger.Of(ctx).Grow(ctx, p, growth)
}

// textCopies and structuredCopies are the numbers of JSON copies of a text and of
// the structured content in an answer; both were measured. Growth below
// grownLeast is within the estimate of [ledger.AnswerCost].
const (
	textCopies       = 2
	structuredCopies = 3
	grownLeast       = 64 << 10
)
