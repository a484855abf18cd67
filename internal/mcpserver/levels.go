package mcpserver

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
)

// followLevels begins to send notices to a session that has set a level. From version
// 2026-07-28 on, a level belongs to one request, and logging is deprecated: there are
// no notices then, and the server does not announce them.
func (s *Server) followLevels(next mcp.MethodHandler) mcp.MethodHandler {
	if s.opts.Profile != nil {
		return next
	}
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		if err != nil {
			return res, err
		}
		if found, ok := res.(*mcp.DiscoverResult); ok && s.opts.Extension == nil {
			found.Capabilities.Logging = nil
		}
		if method != "logging/setLevel" {
			return res, nil
		}
		id, known := auth.FromContext(ctx)
		ss, ok := req.GetSession().(*mcp.ServerSession)
		if known && ok && id.Reads(auth.ScopeRun) {
			s.notices.Follow(ctx, id.Principal, ss)
		}
		return res, nil
	}
}
