package mcpserver

import (
	"context"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
)

// forEveryone warns of a signed URL.
const forEveryone = "for everyone who has the address"

func (s *Server) previewURL() tool {
	type arguments struct {
		SandboxID string `json:"sandbox_id"`
		Port      int    `json:"port"`
		Expires   int64  `json:"expires_seconds,omitempty" jsonschema:"default 3600"`
	}
	type signed struct {
		URL     string    `json:"url"`
		Expires time.Time `json:"expires_at"`
		Note    string    `json:"note"`
	}
	return takes(tool{
		name:        "preview_url",
		title:       "Get a URL for a port",
		description: "Sign a URL for a server in a sandbox.",
		scope:       auth.ScopeRun,
		idempotent:  true,
	}, limits{"expires_seconds": expiresLimit}, func(ctx context.Context, c call, in arguments) (*mcp.CallToolResult, error) {
		url, expires, err := s.opts.Ports.PortURL(ctx, c.principal, in.SandboxID, in.Port, expiry(in.Expires))
		if err != nil {
			return nil, err
		}
		return answer.New(signed{url, expires, forEveryone}, fmt.Sprintf("%s\nuntil %s, %s", url, expires.UTC().Format(time.RFC3339), forEveryone))
	})
}
