package httpserver

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// metadataPath is the path of the protected-resource metadata (RFC 9728). It
// lists the authorization servers whose tokens a resource accepts, if there are any.
const metadataPath = "/.well-known/oauth-protected-resource"

// authenticate calls next for requests with a valid bearer token, with the
// identity in the context.
func (s *Server) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, err := s.identify(r)
		if errors.Is(err, sandbox.Unauthenticated) {
			s.challenge(w, r, codeOf(r))
			if slices.Contains(s.opts.CodeRunnerPaths, r.URL.Path) {
				writeJSON(w, http.StatusUnauthorized, map[string]string{"error": codeRunnerRefusal(err)})
				return
			}
			writeError(w, err)
			return
		}
		if err != nil {
			s.opts.Log.Error("verify token", "error", err)
			writeError(w, err)
			return
		}
		noteIdentity(r.Context(), id)
		if len(id.Scopes) == 0 {
			s.challenge(w, r, insufficientScope)
			refuse(w, http.StatusForbidden, "forbidden", "the token must have one of the scopes "+strings.Join(s.opts.Scopes, ", "),
				"ask the issuer for a token with such a scope")
			return
		}
		next.ServeHTTP(w, r.WithContext(auth.NewContext(r.Context(), id)))
	})
}

// operatorsOnly refuses identities without [auth.ScopeOperate].
func operatorsOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id, _ := auth.FromContext(r.Context()); !id.Can(auth.ScopeOperate) {
			refuse(w, http.StatusForbidden, "forbidden", "the token lacks the scope operate",
				"create a token with it: glovebox token create NAME --role operator")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// The errors for a request without a token.
var (
	errNoHeader  = sandbox.Errorf(sandbox.Unauthenticated, "there is no Authorization header")
	errNotBearer = sandbox.Errorf(sandbox.Unauthenticated, "the Authorization header must be Bearer and a token")
)

// Error codes of RFC 6750: for a token that is not valid, and for a valid token
// that may not do this.
const (
	invalidToken      = "invalid_token"
	insufficientScope = "insufficient_scope"
)

// codeOf returns the error code for the challenge to a request without a valid
// token. RFC 6750 has no code for a request that sends none.
func codeOf(r *http.Request) string {
	if r.Header.Get("Authorization") == "" {
		return ""
	}
	return invalidToken
}

// codeRunnerRefusal returns mcp-code-runner's text for an authentication error.
func codeRunnerRefusal(err error) string {
	switch {
	case errors.Is(err, errNoHeader):
		return "Missing Authorization header"
	case errors.Is(err, errNotBearer):
		return "Invalid Authorization header format"
	default:
		return "Invalid API token"
	}
}

// challenge sets the WWW-Authenticate header of RFC 6750 and RFC 9728. code is
// the error of the request's token, or "". Some clients show only this header.
func (s *Server) challenge(w http.ResponseWriter, r *http.Request, code string) {
	text := fmt.Sprintf("Bearer realm=%q, resource_metadata=%q", "glovebox", s.publicURL(r)+metadataPath+r.URL.Path)
	if len(s.issuers(r)) > 0 {
		text += fmt.Sprintf(", scope=%q", strings.Join(s.opts.Scopes, " "))
	}
	switch code {
	case "":
	case invalidToken:
		text += fmt.Sprintf(", error=%q, error_description=%q", code, "the token is not valid; "+s.howToSignIn())
	default:
		text += fmt.Sprintf(", error=%q", code)
	}
	w.Header().Set("WWW-Authenticate", text)
}

// identify returns the owner of a request's token.
func (s *Server) identify(r *http.Request) (auth.Identity, error) {
	header := r.Header.Values("Authorization")
	if len(header) == 0 {
		if s.opts.Anonymous != nil {
			return *s.opts.Anonymous, nil
		}
		return auth.Identity{}, sandbox.WithHint(errNoHeader, hintSendToken)
	}
	scheme, token, _ := strings.Cut(header[0], " ")
	token = strings.TrimSpace(token)
	if len(header) > 1 || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return auth.Identity{}, sandbox.WithHint(errNotBearer, hintSendToken)
	}
	return s.opts.Auth.Verify(r.Context(), token)
}

// publicURL returns the URL at which the client reaches this server, without a
// slash at the end.
func (s *Server) publicURL(r *http.Request) string {
	if s.opts.PublicURL != "" {
		return strings.TrimSuffix(s.opts.PublicURL, "/")
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + r.Host
}

// issuers returns the URLs of the authorization servers whose tokens are accepted.
func (s *Server) issuers(r *http.Request) []string {
	if s.opts.SignIn != nil {
		return append([]string{s.publicURL(r)}, s.opts.Issuers...)
	}
	return s.opts.Issuers
}

// metadata describes the resource whose path follows metadataPath.
func (s *Server) metadata(w http.ResponseWriter, r *http.Request) {
	m := map[string]any{
		"resource":                 s.publicURL(r) + strings.TrimPrefix(r.URL.Path, metadataPath),
		"resource_name":            "Glovebox",
		"bearer_methods_supported": []string{"header"},
		"scopes_supported":         s.opts.Scopes,
	}
	if issuers := s.issuers(r); len(issuers) > 0 { // RFC 9728 does not allow empty lists
		m["authorization_servers"] = issuers
	}
	writeJSON(w, http.StatusOK, m)
}
