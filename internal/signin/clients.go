package signin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Bounds of what a client says about itself.
const (
	maxURIs      = 20
	maxURI       = 2000 // bytes
	maxName      = 80   // characters
	unnamedInUse = "An MCP client without a name"
)

// A registration is the request of RFC 7591, and a client ID metadata document.
// Other members are ignored.
type registration struct {
	ClientID     string   `json:"client_id,omitempty"`
	Name         string   `json:"client_name"`
	RedirectURIs []string `json:"redirect_uris"`
	GrantTypes   []string `json:"grant_types"`
	AuthMethod   string   `json:"token_endpoint_auth_method"`
}

// client checks what a client says about itself. The error's text names the wrong
// member.
func (r *registration) client() (sandbox.OAuthClient, error) {
	c := sandbox.OAuthClient{Name: displayName(r.Name), RedirectURIs: r.RedirectURIs}
	switch {
	case len(c.RedirectURIs) == 0 && !slices.Contains(r.GrantTypes, grantDevice):
		return c, sandbox.Errorf(sandbox.Invalid, "redirect_uris: at least one is needed")
	case len(c.RedirectURIs) > maxURIs:
		return c, sandbox.Errorf(sandbox.Invalid, "redirect_uris: there are %d, and at most %d may be registered", len(c.RedirectURIs), maxURIs)
	}
	for _, uri := range c.RedirectURIs {
		if err := checkRedirect(uri); err != nil {
			return c, err
		}
	}
	return c, nil
}

// displayName returns a client's name as the pages show it.
func displayName(name string) string {
	name = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(name, ""), func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r)
	}), " ")
	if utf8.RuneCountInString(name) > maxName {
		name = string([]rune(name)[:maxName-1]) + "…"
	}
	if name == "" {
		return unnamedInUse
	}
	return name
}

// privateScheme is the form of the schemes that native programs register with
// their system, such as cursor and com.example.app.
var privateScheme = regexp.MustCompile(`^[a-z][a-z0-9+.-]*$`)

// refusedSchemes make a browser run code, or lead it to other data than a
// program's.
var refusedSchemes = []string{"javascript", "data", "vbscript", "file", "about", "blob", "filesystem", "view-source", "ws", "wss", "ftp", "mailto", "tel"}

// checkRedirect returns an error unless a client may have the redirect URI: with
// https, with http on this machine (RFC 8252), or with a scheme of a program.
func checkRedirect(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || len(text) > maxURI || u.Fragment != "" || u.User != nil || strings.ContainsFunc(text, unicode.IsControl):
		return sandbox.Errorf(sandbox.Invalid, "redirect_uris: a URI is not valid")
	case u.Scheme == "https" && u.Host != "":
	case u.Scheme == "http" && sandbox.IsLoopback(u.Hostname()):
	case u.Scheme == "http" || u.Scheme == "https":
		return sandbox.Errorf(sandbox.Invalid, "redirect_uris: a URI with http must lead to a loopback address")
	case !privateScheme.MatchString(u.Scheme) || slices.Contains(refusedSchemes, u.Scheme) || u.Opaque != "":
		return sandbox.Errorf(sandbox.Invalid, "redirect_uris: a URI has a scheme that is not allowed")
	}
	return nil
}

// redirects reports whether the client may send people to uri. The port of a
// loopback address is free, because programs listen on a free port (RFC 8252).
func redirects(c sandbox.OAuthClient, uri string) bool {
	u, err := url.Parse(uri)
	if err != nil || checkRedirect(uri) != nil {
		return false
	}
	return slices.ContainsFunc(c.RedirectURIs, func(known string) bool {
		if known == uri {
			return true
		}
		k, err := url.Parse(known)
		return err == nil && u.Scheme == "http" && k.Scheme == "http" && sandbox.IsLoopback(u.Hostname()) && k.Hostname() == u.Hostname() &&
			k.EscapedPath() == u.EscapedPath() && k.RawQuery == u.RawQuery
	})
}

// registerClient serves the registration of RFC 7591.
func (s *Server) registerClient(w http.ResponseWriter, r *http.Request, _ string) {
	if r.Method != http.MethodPost {
		wrongMethod(w, http.MethodPost)
		return
	}
	if !s.register.Allow() {
		refuse(w, http.StatusTooManyRequests, "temporarily_unavailable", "too many registrations; try again in a few seconds")
		return
	}
	var req registration
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		refuse(w, http.StatusBadRequest, "invalid_client_metadata", "the body must be a JSON object as in RFC 7591")
		return
	}
	c, err := req.client()
	if err != nil {
		refuse(w, http.StatusBadRequest, "invalid_redirect_uri", err.Error())
		return
	}
	c.ID, c.Created = sandbox.NewOAuthClientID(), s.opts.Now()
	if err := s.opts.Store.PutOAuthClient(r.Context(), c, maxClients); err != nil {
		s.fail(w, err)
		return
	}
	writeJSON(w, http.StatusCreated, map[string]any{
		"client_id":                  c.ID,
		"client_id_issued_at":        c.Created.Unix(),
		"client_name":                c.Name,
		"redirect_uris":              c.RedirectURIs,
		"grant_types":                []string{grantCode, grantRefresh, grantDevice},
		"response_types":             []string{"code"},
		"token_endpoint_auth_method": "none",
	})
}

// client returns the client with an ID. The error wraps [sandbox.NotFound] if there
// is none, and [sandbox.Invalid] or [sandbox.Unavailable] if its document cannot be
// used.
func (s *Server) client(ctx context.Context, id string) (sandbox.OAuthClient, error) {
	if strings.HasPrefix(id, "https://") {
		if s.documents == nil {
			return sandbox.OAuthClient{}, sandbox.Errorf(sandbox.NotFound,
				"this server does not fetch metadata documents; the client must register at %s", registerPath)
		}
		return s.documents.client(ctx, id)
	}
	c, err := s.opts.Store.OAuthClient(ctx, id)
	if errors.Is(err, sandbox.NotFound) {
		return c, sandbox.Errorf(sandbox.NotFound, "the client is not registered at this server; remove its saved sign-in and try again")
	}
	return c, err
}
