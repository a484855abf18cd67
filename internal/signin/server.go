// Package signin is a small OAuth authorization server for MCP clients, for teams
// without an identity provider. A person signs in on its page with a Glovebox
// token. The client then gets short-lived access tokens for the same principal, and
// never sees the Glovebox token.
//
// It implements the authorization code with PKCE (RFC 6749, RFC 7636), refresh
// tokens with rotation, the device code (RFC 8628), dynamic registration (RFC
// 7591), client ID metadata documents, revocation (RFC 7009), and metadata (RFC
// 8414, RFC 9207, RFC 8707). All clients are public: they have no secret.
//
// Libraries for authorization servers were not used. They leave out client ID
// metadata documents and resource indicators, which MCP needs, and the clients'
// secrets and ID tokens that they are made for do not exist here.
//
// Only package app imports it. [New] makes a [Server], and httpserver serves its
// handlers behind the guard for hosts and origins. Grants are in the store. Codes
// that wait for a client are in memory, and a restart ends them: the client asks
// again. A Server needs no Close, and is safe for concurrent use.
package signin

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Verifier verifies Glovebox tokens; see [auth.Auth.Verify].
type Verifier interface {
	Verify(ctx context.Context, token string) (auth.Identity, error)
}

// A Store keeps clients and grants.
type Store interface {
	PutOAuthClient(ctx context.Context, c sandbox.OAuthClient, most int) error
	OAuthClient(ctx context.Context, id string) (sandbox.OAuthClient, error)
	PutGrant(ctx context.Context, g sandbox.Grant, most int, tokens ...sandbox.GrantToken) error
	GrantToken(ctx context.Context, hash [32]byte, refresh bool) (sandbox.Grant, sandbox.GrantToken, error)
	RenewGrant(ctx context.Context, old [32]byte, grant string, since, expires time.Time, tokens ...sandbox.GrantToken) (bool, error)
	EndGrant(ctx context.Context, id string) error
}

// Options are the arguments of [New]. Auth, Store and Log must be set.
type Options struct {
	Auth  Verifier
	Store Store
	Log   *slog.Logger
	// Documents allows clients that are identified by the URL of a metadata
	// document. The server then fetches documents from the internet, from
	// addresses that Public allows.
	Documents bool
	Public    func(netip.Addr) bool
	// Domains are the domains, and Ports the loopback ports, at which this server
	// serves programs of sandboxes. No client may have a redirect URI there, nor at
	// the server's own host.
	Domains []string
	Ports   []string
	// Shard is in the texts of new tokens; the zero value is none.
	Shard sandbox.Shard
	// Now is the clock; nil is [time.Now].
	Now func() time.Time
}

// The lifetimes.
const (
	codeTTL   = 2 * time.Minute
	deviceTTL = 10 * time.Minute
	accessTTL = time.Hour
	// grantTTL is how long a grant lasts without use.
	grantTTL = 30 * 24 * time.Hour
	// replayGrace is how long a replaced refresh token is accepted again. A client
	// whose connection broke has not seen the answer, and repeats the request.
	replayGrace = time.Minute
)

// The bounds.
const (
	maxClients = 1000
	maxGrants  = 50   // of one token
	maxPending = 1000 // codes, and device codes, each
	maxOfOwner = 20   // of one person, or of one address
	maxForm    = 64 << 10
	// bodyTimeout bounds how long a request's body takes to arrive.
	bodyTimeout = 10 * time.Second
	// Strangers are counted by address, and the clients of a grant by grant.
	// Behind a proxy, all strangers have one address.
	requestEvery, requestBurst   = 50 * time.Millisecond, 200
	registerEvery, registerBurst = 2 * time.Second, 60
	documentEvery, documentBurst = 10 * time.Second, 10
	grantEvery, grantBurst       = time.Second, 60
)

// A Server is an authorization server.
type Server struct {
	opts      Options
	documents *documents
	codes     pending[*code]
	devices   pending[*device]
	strangers *limits // requests, by address
	register  *limits // registrations, by address
	clients   *limits // requests with a known token, by grant
}

// New returns a Server.
func New(o Options) *Server {
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{
		opts:      o,
		strangers: newLimits(requestEvery, requestBurst),
		register:  newLimits(registerEvery, registerBurst),
		clients:   newLimits(grantEvery, grantBurst),
	}
	if o.Documents {
		s.documents = newDocuments(o.Public, o.Now, o.Log)
	}
	return s
}

// The paths. Clients of MCP's version of 2025-03-26 use the first three also
// without metadata.
const (
	authorizePath = "/authorize"
	tokenPath     = "/token"
	registerPath  = "/register"
	revokePath    = "/revoke"
	deviceCode    = "/device_authorization"
	devicePath    = "/device"
	// metadataPath is followed by the path of the resource in requests of some
	// clients.
	metadataPath = "/.well-known/oauth-authorization-server"
)

// Handlers returns a handler for each path. A path that ends in a slash includes
// all paths below it. base returns the URL by which a request's client reaches the
// server, without a slash at the end.
func (s *Server) Handlers(base func(*http.Request) string) map[string]http.Handler {
	metadata := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.metadata(w, r, base(r)) })
	handlers := map[string]http.Handler{metadataPath: metadata, metadataPath + "/": metadata}
	for path, h := range map[string]func(http.ResponseWriter, *http.Request, string){
		authorizePath: s.authorize,
		tokenPath:     s.token,
		registerPath:  s.registerClient,
		revokePath:    s.revoke,
		deviceCode:    s.beginDevice,
		devicePath:    s.devicePage,
	} {
		handlers[path] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "no-store")
			// The connection is not used again if a body is late.
			if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
				s.opts.Log.Debug("set the deadline of a sign-in request", "error", err)
			}
			r.Body = http.MaxBytesReader(w, r.Body, maxForm)
			h(w, r, base(r))
		})
	}
	return handlers
}

// admit reports whether a request of a stranger may pass, by its address, or answers
// that there are too many.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) bool {
	if s.strangers.allow(string(fair.AddressOf(r.RemoteAddr))) {
		return true
	}
	refuse(w, http.StatusTooManyRequests, "temporarily_unavailable", "too many requests; try again in a second")
	return false
}

// metadata answers with the metadata of RFC 8414.
func (s *Server) metadata(w http.ResponseWriter, _ *http.Request, base string) {
	writeJSON(w, http.StatusOK, map[string]any{
		"issuer":                                         base,
		"authorization_endpoint":                         base + authorizePath,
		"token_endpoint":                                 base + tokenPath,
		"registration_endpoint":                          base + registerPath,
		"revocation_endpoint":                            base + revokePath,
		"device_authorization_endpoint":                  base + deviceCode,
		"scopes_supported":                               scopeNames(offered),
		"response_types_supported":                       []string{"code"},
		"response_modes_supported":                       []string{"query"},
		"grant_types_supported":                          []string{grantCode, grantRefresh, grantDevice},
		"token_endpoint_auth_methods_supported":          []string{"none"},
		"revocation_endpoint_auth_methods_supported":     []string{"none"},
		"code_challenge_methods_supported":               []string{"S256"},
		"authorization_response_iss_parameter_supported": true,
		"client_id_metadata_document_supported":          s.documents != nil,
		"service_documentation":                          "https://github.com/glovebox-dev/glovebox",
	})
}

// offered are the scopes that a client may get. A client never gets admin.
var offered = []auth.Scope{auth.ScopeRun, auth.ScopeFiles}

func scopeNames(scopes []auth.Scope) []string {
	names := make([]string, len(scopes))
	for i, s := range scopes {
		names[i] = string(s)
	}
	return names
}

// wanted returns the offered scopes in a request's scope parameter. All are wanted
// if the parameter is empty. Clients also ask for scopes of other servers, such as
// offline_access; these are left out.
func wanted(parameter string) []auth.Scope {
	if strings.TrimSpace(parameter) == "" {
		return offered
	}
	var scopes []auth.Scope
	for _, s := range offered {
		for _, name := range strings.Fields(parameter) {
			if name == string(s) {
				scopes = append(scopes, s)
				break
			}
		}
	}
	return scopes
}

// signIn returns the identity of the person who typed a token, and the scopes of
// want that it has. A person who can only read gets the scope read. The error wraps [sandbox.Unauthenticated] or
// [sandbox.Forbidden], and its text is for the person.
func (s *Server) signIn(ctx context.Context, token string, want []auth.Scope) (auth.Identity, []string, error) {
	id, err := s.opts.Auth.Verify(ctx, strings.TrimSpace(token))
	if errors.Is(err, sandbox.Unauthenticated) {
		return id, nil, sandbox.Errorf(sandbox.Unauthenticated, "this token is not valid; type it completely, with gbx_")
	}
	if err != nil {
		return id, nil, err
	}
	if id.Token == "" || id.Grant != "" {
		return id, nil, sandbox.Errorf(sandbox.Forbidden,
			"this token cannot sign in; use a token that glovebox token create made")
	}
	var scopes []string
	for _, scope := range want {
		switch {
		case id.Can(scope):
			scopes = append(scopes, string(scope))
		case id.Can(auth.ScopeRead) && !slices.Contains(scopes, string(auth.ScopeRead)):
			scopes = append(scopes, string(auth.ScopeRead)) // less than the program wants
		}
	}
	if len(scopes) == 0 {
		return id, nil, sandbox.Errorf(sandbox.Forbidden, "this token has none of the scopes that the program asks for")
	}
	return id, scopes, nil
}
