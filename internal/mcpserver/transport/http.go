package transport

import (
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/glovebox-dev/glovebox/internal/auth"
)

// The paths that Handler serves.
const (
	StreamablePath = "/mcp"
	SSEPath        = "/sse"
)

// An httpHandler finds the transport of a request by its path.
type httpHandler struct {
	opts       Options
	streamable *streamable
	sse        *sseHandler
}

func (h *httpHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, ok := auth.FromContext(r.Context())
	if !ok {
		w.Header().Set("WWW-Authenticate", "Bearer")
		writeError(w, http.StatusUnauthorized, nil, jsonrpc.CodeInvalidRequest, "no token")
		return
	}
	own := StreamablePath + "/" + h.opts.Name
	switch r.URL.Path {
	case StreamablePath, own:
		if h.opts.Sessionless && r.Header.Get(sessionHeader) == "" {
			h.streamable.serveSessionless(w, r)
			return
		}
		h.streamable.serve(w, r, id)
	case SSEPath, own + SSEPath:
		h.sse.serve(w, r, id)
	default:
		writeError(w, http.StatusNotFound, nil, jsonrpc.CodeInvalidRequest, "there is nothing at this path; MCP is at "+StreamablePath)
	}
}
