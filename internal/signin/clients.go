package signin

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Bounds of what a client says about itself.
const (
	maxURIs = 20
	maxURI  = 2000 // bytes
	maxName = 80   // characters
	unnamed = "An MCP client without a name"
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
		return unnamed
	}
	return name
}

// privateScheme is the form of the schemes that native programs register with
// their system, such as cursor and com.example.app.
var privateScheme = regexp.MustCompile(`^[a-z][a-z0-9+.-]*$`)

// refusedSchemes are parts of the schemes that make a browser run code or open a
// file, or that lead to a website by way of another browser.
var refusedSchemes = regexp.MustCompile(`^(javascript|data|vbscript|file|about|blob|filesystem|view-source|wss?|ftp|mailto|tel|intent|android-app)$|http|chrome|safari|firefox|edge|opera|brave|browser`)

// hostForm is the form of host names in redirect URIs. Names in other alphabets
// have it as punycode, so that a page shows no look-alikes.
var hostForm = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)*$`)

// checkRedirect returns an error unless a client may have the redirect URI: with
// https, with http on this machine (RFC 8252), or with a scheme of a program.
func checkRedirect(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || len(text) > maxURI || u.Fragment != "" || u.User != nil || strings.ContainsFunc(text, isForeign):
		return sandbox.Errorf(sandbox.Invalid, "redirect_uris: a URI is not valid")
	case isWeb(u) && !isHost(u.Hostname()):
		return sandbox.Errorf(sandbox.Invalid, "redirect_uris: the host of a URI must be a name in lower case, or an address")
	case u.Scheme == "https":
	case isWeb(u) && sandbox.IsLoopback(u.Hostname()):
	case isWeb(u):
		return sandbox.Errorf(sandbox.Invalid, "redirect_uris: a URI with http must lead to a loopback address")
	case !privateScheme.MatchString(u.Scheme) || refusedSchemes.MatchString(u.Scheme) || u.Opaque != "":
		return sandbox.Errorf(sandbox.Invalid, "redirect_uris: a URI has a scheme that is not allowed")
	}
	return nil
}

// isForeign reports whether a character has no place in a URI.
func isForeign(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune("\"<>\\^`{|}", r) }

func isWeb(u *url.URL) bool { return u.Scheme == "http" || u.Scheme == "https" }

func isHost(name string) bool {
	a, err := netip.ParseAddr(name)
	return err == nil && a.Zone() == "" || hostForm.MatchString(name)
}

// isOwn reports whether a redirect URI leads to this server, which also serves
// programs of sandboxes. Such a program would get the codes of other people.
func (s *Server) isOwn(uri, base string) bool {
	u, err := url.Parse(uri)
	b, berr := url.Parse(base)
	if err != nil || berr != nil {
		return true
	}
	host := u.Hostname()
	if sandbox.IsLoopback(host) && sandbox.IsLoopback(b.Hostname()) {
		return u.Port() == b.Port() || slices.Contains(s.opts.Ports, u.Port())
	}
	return isWeb(u) && (host == strings.ToLower(b.Hostname()) || slices.ContainsFunc(s.opts.Domains, func(d string) bool {
		return host == d || strings.HasSuffix(host, "."+d)
	}))
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
	if !s.register.allow(string(fair.AddressOf(r.RemoteAddr))) {
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

// client returns the client with an ID, for a request of the stranger r. The error wraps [sandbox.NotFound] if there
// is none, and [sandbox.Invalid] or [sandbox.Unavailable] if its document cannot be
// used.
func (s *Server) client(r *http.Request, id string) (sandbox.OAuthClient, error) {
	if strings.HasPrefix(id, "https://") {
		if s.documents == nil {
			return sandbox.OAuthClient{}, sandbox.Errorf(sandbox.NotFound,
				"this server does not fetch metadata documents; the client must register at %s", registerPath)
		}
		return s.documents.client(r.Context(), string(fair.AddressOf(r.RemoteAddr)), id)
	}
	c, err := s.opts.Store.OAuthClient(r.Context(), id)
	if errors.Is(err, sandbox.NotFound) {
		return c, sandbox.Errorf(sandbox.NotFound, "the client is not registered at this server; remove its saved sign-in and try again")
	}
	return c, err
}
