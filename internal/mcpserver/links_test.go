package mcpserver

import (
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/transport"
)

// TestLinksByVersion shows a picture that becomes a link. Clients of versions without
// links get its name and URI as text, and so do clients that a link harms.
func TestLinksByVersion(t *testing.T) {
	s, _ := newTestServer(t, nil)
	url := serveHTTP(t, s)
	for _, tt := range []struct {
		version, client string
		linked          bool
	}{
		{"2024-11-05", "test", false}, {"2025-03-26", "test", false}, {"2025-06-18", "test", true}, {"2025-11-25", "test", true}, {"2026-07-28", "test", true},
		{"2025-11-25", "@langchain/mcp-adapters", false}, {"2026-07-28", "@langchain/mcp-adapters", false},
	} {
		version, linked := tt.version, tt.linked
		c := mcp.NewClient(&mcp.Implementation{Name: tt.client, Version: "1"}, nil)
		cs, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{
			Endpoint: url + transport.StreamablePath, HTTPClient: &http.Client{Transport: bearer("alice")},
		}, &mcp.ClientSessionOptions{ProtocolVersion: version})
		if err != nil {
			t.Fatalf("%s: %v", version, err)
		}
		res := callTool(t, cs, "run_code", args{"code": `show image/png "aGVsbG8="`})
		uri, asText := "", false
		for _, content := range res.Content {
			switch content := content.(type) {
			case *mcp.ResourceLink:
				uri = content.URI
			case *mcp.TextContent:
				asText = asText || strings.Contains(content.Text, ": run://") && strings.HasSuffix(content.Text, "/results/0/image/png")
			}
		}
		if (uri != "") != linked || asText == linked {
			t.Errorf("%s: the link is %q, and text %t; want a link %t", version, uri, asText, linked)
		}
		if linked {
			if _, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri}); err != nil {
				t.Errorf("%s: the link cannot be read: %v", version, err)
			}
		}
		cs.Close()
	}
}
