package signin

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A code is an authorization code that waits for its client.
type code struct {
	client    string // ID
	name      string // of the client
	redirect  string // the request's parameter; "" if it had none
	challenge string
	token     string // ID of the token with which the person signed in
	scopes    []string
	expires   time.Time
	grant     string // ID of the grant that the code was exchanged for, or ""
	replayed  bool   // whether the code was used again since
}

func (c *code) ends() time.Time { return c.expires }

// A request is a client's request for authorization.
type request struct {
	Client    sandbox.OAuthClient
	redirect  string // where the answer goes
	State     string
	Challenge string
	Scope     string
	Resource  string
	named     string // the parameter redirect_uri
}

// challengeForm is the form of a challenge by SHA-256, in base64url.
var challengeForm = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)

// A problem is an error that goes to the client, by a redirect.
type problem struct{ code, text string }

// parse checks the parameters. An error is for the person: without a valid
// redirect URI there is no way to the client. A problem is for the client.
func (s *Server) parse(r *http.Request, q url.Values, base string) (*request, *problem, error) {
	c, err := s.client(r, q.Get("client_id"))
	if err != nil {
		return nil, nil, err
	}
	req := &request{
		Client: c, State: q.Get("state"), Challenge: q.Get("code_challenge"), Scope: q.Get("scope"), Resource: q.Get("resource"),
		named: q.Get("redirect_uri"),
	}
	req.redirect = req.named
	if req.named == "" && len(c.RedirectURIs) == 1 {
		req.redirect = c.RedirectURIs[0]
	}
	if !redirects(c, req.redirect) {
		return nil, nil, sandbox.Errorf(sandbox.Invalid, "redirect_uri: the client has not registered it")
	}
	if s.isOwn(req.redirect, base) {
		return nil, nil, sandbox.Errorf(sandbox.Invalid, "redirect_uri: it leads to this server, which is no client")
	}
	for name, values := range q {
		if len(values) > 1 && name != "resource" {
			return req, &problem{"invalid_request", name + " is there more than once"}, nil
		}
	}
	switch {
	case q.Get("response_type") != "code":
		return req, &problem{"unsupported_response_type", "response_type must be code"}, nil
	case q.Get("code_challenge_method") != "S256" || !challengeForm.MatchString(req.Challenge):
		return req, &problem{"invalid_request", "code_challenge is needed, with the method S256"}, nil
	case len(wanted(req.Scope)) == 0:
		return req, &problem{"invalid_scope", "the scopes of this server are run and files"}, nil
	}
	for _, resource := range q["resource"] {
		if !isOurs(resource, base) {
			return req, &problem{"invalid_target", "resource is not a URL of this server"}, nil
		}
	}
	return req, nil, nil
}

// isOurs reports whether a resource indicator (RFC 8707) names this server.
func isOurs(resource, base string) bool {
	u, err := url.Parse(resource)
	b, berr := url.Parse(base)
	if err != nil || berr != nil || u.Fragment != "" || !strings.EqualFold(u.Scheme, b.Scheme) || !strings.EqualFold(u.Host, b.Host) {
		return false
	}
	path, below := strings.CutPrefix(u.EscapedPath(), strings.TrimSuffix(b.EscapedPath(), "/"))
	return below && (path == "" || path[0] == '/')
}

// authorize serves the page on which a person signs in and allows a client.
func (s *Server) authorize(w http.ResponseWriter, r *http.Request, base string) {
	switch r.Method {
	case http.MethodGet, http.MethodPost:
	default:
		wrongMethod(w, "GET, POST")
		return
	}
	if err := r.ParseForm(); err != nil {
		showError(w, http.StatusBadRequest, "The request cannot be read.")
		return
	}
	params := r.URL.Query()
	if r.Method == http.MethodPost {
		params = r.PostForm
	}
	// A person with a token is no stranger.
	id, scopes, failed := s.signIn(r.Context(), r.PostForm.Get("token"), wanted(params.Get("scope")))
	if failed != nil && !s.admit(w, r) {
		return
	}
	req, wrong, err := s.parse(r, params, base)
	if err != nil {
		showError(w, sandbox.KindOf(err).HTTPStatus(), "The program cannot be let in: "+s.personal(err))
		return
	}
	if wrong != nil && !req.isLocal() { // else, every link to this server could lead anywhere
		showError(w, http.StatusBadRequest, "The request of the program at "+hostOf(req.redirect)+" is wrong: "+wrong.text)
		return
	}
	if wrong != nil {
		req.answer(w, r, base, url.Values{"error": {wrong.code}, "error_description": {plain(wrong.text)}})
		return
	}
	if r.Method == http.MethodGet {
		req.show(w, http.StatusOK, base, "")
		return
	}
	if params.Get("decision") != "allow" {
		req.answer(w, r, base, url.Values{"error": {"access_denied"}, "error_description": {"the person refused"}})
		return
	}
	if failed != nil {
		req.show(w, sandbox.KindOf(failed).HTTPStatus(), base, s.personal(failed))
		return
	}
	secret := newSecret()
	now := s.opts.Now()
	s.codes.put(secret, id.Token, &code{
		client: req.Client.ID, name: req.Client.Name, redirect: req.named, challenge: req.Challenge,
		token: id.Token, scopes: scopes, expires: now.Add(codeTTL),
	}, now)
	s.opts.Log.Info("sign-in allowed", "principal", id.Principal, "client", req.Client.Name, "redirect", hostOf(req.redirect))
	req.answer(w, r, base, url.Values{"code": {secret}})
}

// personal returns an error's text for a person. It hides the details of internal
// errors.
func (s *Server) personal(err error) string {
	if sandbox.KindOf(err) == sandbox.Internal {
		s.opts.Log.Error("sign-in", "error", err)
		return "internal error; the log of the server has the cause"
	}
	return err.Error()
}

// answer sends the browser back to the client.
func (req *request) answer(w http.ResponseWriter, r *http.Request, base string, values url.Values) {
	u, err := url.Parse(req.redirect)
	if err != nil { // parse has checked it
		showError(w, http.StatusBadRequest, "The program's address is not valid.")
		return
	}
	q := u.Query()
	for name := range values {
		q.Set(name, values.Get(name))
	}
	q.Set("iss", base)
	if req.State != "" {
		q.Set("state", req.State)
	}
	u.RawQuery = q.Encode()
	w.Header().Set("Referrer-Policy", "no-referrer")
	http.Redirect(w, r, u.String(), http.StatusSeeOther)
}

// hostOf returns the place that a redirect URI leads to, for a person.
func hostOf(uri string) string {
	u, err := url.Parse(uri)
	switch {
	case err != nil:
		return uri
	case isWeb(u):
		return u.Host
	}
	return u.Scheme + "://" + u.Host
}

// isLocal reports whether the answer goes to a program that listens on the
// person's machine.
func (req *request) isLocal() bool {
	u, err := url.Parse(req.redirect)
	return err == nil && isWeb(u) && sandbox.IsLoopback(u.Hostname())
}

// show writes the page for the request.
func (req *request) show(w http.ResponseWriter, status int, base, wrong string) {
	u, err := url.Parse(req.redirect)
	if err != nil {
		showError(w, http.StatusBadRequest, "The program's address is not valid.")
		return
	}
	// Browsers apply form-action also to the redirect after the form. It has no
	// notation for most loopback addresses.
	target := u.Scheme + ":"
	if isWeb(u) && !req.isLocal() {
		target = u.Scheme + "://" + u.Host
	}
	page{
		Action: base + authorizePath, Client: req.Client.Name, Wrong: wrong, Local: req.isLocal(), Place: hostOf(req.redirect),
		Rights: rights(wanted(req.Scope)),
		Hidden: []hidden{
			{"response_type", "code"}, {"client_id", req.Client.ID}, {"redirect_uri", req.named}, {"state", req.State}, {"scope", req.Scope},
			{"code_challenge", req.Challenge}, {"code_challenge_method", "S256"}, {"resource", req.Resource},
		},
	}.show(w, status, target)
}

// rights says what the scopes allow.
func rights(scopes []auth.Scope) []string {
	var list []string
	for _, s := range scopes {
		switch s {
		case auth.ScopeRun:
			list = append(list, "make, use and stop your sandboxes, and run code in them")
		case auth.ScopeFiles:
			list = append(list, "read and write your files in sandboxes and workspaces")
		}
	}
	return list
}
