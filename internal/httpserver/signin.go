package httpserver

import (
	"net/http"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// hintSendToken is the hint for a request without a token.
const hintSendToken = "send Authorization: Bearer and a token of this server; glovebox token create NAME on its machine makes one"

// serveSignIn serves the paths at which MCP clients without a token look for an
// authorization server. Without [Options.SignIn], this server is none. But clients
// show the answer to their user, so the answers say how to get a token.
func (s *Server) serveSignIn(mux *routes, g *guard) {
	guarded := func(path string, h http.HandlerFunc) { mux.Handle(path, g.checkHost(g.checkOrigin(h))) }
	guarded("/.well-known/", func(w http.ResponseWriter, _ *http.Request) {
		writeError(w, sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "this server is not an authorization server"), "%s", s.howToSignIn()))
	})
	if s.opts.SignIn != nil {
		for path, h := range s.opts.SignIn.Handlers(s.publicURL) {
			mux.Handle(path, g.checkHost(g.checkOrigin(h)))
		}
		return
	}
	// Clients parse these errors as OAuth's (RFC 6749 and RFC 7591), and show
	// their description.
	for _, path := range []string{"/register", "/authorize", "/token"} {
		guarded(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Cache-Control", "no-store")
			writeJSON(w, http.StatusNotFound, map[string]string{
				"error":             "access_denied",
				"error_description": "this server is not an authorization server; " + s.howToSignIn(),
			})
		})
	}
}

// howToSignIn says where the clients' tokens come from. OAuth allows neither
// quotes nor backslashes in it.
func (s *Server) howToSignIn() string {
	if s.opts.SignIn != nil {
		return "let the client sign in again by OAuth, or send a token of glovebox token create as Authorization: Bearer TOKEN"
	}
	if len(s.opts.Issuers) > 0 {
		return "get an access token from " + strings.Join(s.opts.Issuers, " or ") + ", and send it as Authorization: Bearer TOKEN"
	}
	return "ask the server's operator for a token, which glovebox token create NAME makes, and let the client send the header Authorization: Bearer TOKEN"
}
