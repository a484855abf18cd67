package answer

import (
	"encoding/json"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// New returns a result with v for programs and text for models.
func New(v any, text string) (*mcp.CallToolResult, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode result: %w", err)
	}
	return &mcp.CallToolResult{
		Content:           []mcp.Content{&mcp.TextContent{Text: text}},
		StructuredContent: json.RawMessage(b),
	}, nil
}

// WithoutLinks replaces the links of a result by texts. A client of an older version
// may refuse a whole result with a link: SDKs of that time know no such content. Some
// clients of later versions fail as well.
func WithoutLinks(res *mcp.CallToolResult) {
	for i, c := range res.Content {
		if link, ok := c.(*mcp.ResourceLink); ok {
			res.Content[i] = &mcp.TextContent{Text: link.Name + ": " + link.URI}
		}
	}
}
