package signin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/oauth2"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// serverToken is the token of the server's environment.
const serverToken = "token-of-the-environment"

// A world is an authorization server with its store, its tokens and a clock.
type world struct {
	*testing.T
	url    string
	server *Server
	store  *store.Store
	auth   *auth.Auth
	now    time.Time
	token  string // Glovebox token of ada
	id     string // its ID
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, now: time.UnixMicro(time.Now().UnixMicro())}
	clock := func() time.Time { return w.now }
	var err error
	if w.store, err = store.Open(t.Context(), store.Options{Dir: t.TempDir(), Now: clock}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.store.Close() })
	if w.auth, err = auth.New(auth.Options{Tokens: w.store, Grants: w.store, Static: serverToken, Now: clock}); err != nil {
		t.Fatal(err)
	}
	text, tok, err := w.auth.Create(t.Context(), "ada")
	if err != nil {
		t.Fatal(err)
	}
	w.token, w.id = text, tok.ID
	w.server = New(Options{Auth: w.auth, Store: w.store, Log: slog.New(slog.DiscardHandler), Now: clock, Domains: []string{"preview.example"}, Ports: []string{"4444"}})
	mux := http.NewServeMux()
	for path, h := range w.server.Handlers(func(*http.Request) string { return w.url }) {
		mux.Handle(path, h)
	}
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	w.url = srv.URL
	return w
}

// do sends a form, or a GET request without one, and returns status, header and
// body. It follows no redirect.
func (w *world) do(method, path string, form url.Values) (int, http.Header, string) {
	w.Helper()
	target := w.url + path
	var body io.Reader
	if form != nil && method == http.MethodGet {
		target += "?" + form.Encode()
	} else if form != nil {
		body = strings.NewReader(form.Encode())
	}
	req, err := http.NewRequestWithContext(w.Context(), method, target, body)
	if err != nil {
		w.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		w.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		w.Fatal(err)
	}
	return res.StatusCode, res.Header, string(text)
}

// register registers a client and returns its ID.
func (w *world) register(uris ...string) string {
	w.Helper()
	body, err := json.Marshal(map[string]any{"client_name": "Tester <b>", "redirect_uris": uris, "grant_types": []string{grantDevice}})
	if err != nil {
		w.Fatal(err)
	}
	res, err := http.Post(w.url+registerPath, "application/json", strings.NewReader(string(body)))
	if err != nil {
		w.Fatal(err)
	}
	defer res.Body.Close()
	var got struct {
		ID     string   `json:"client_id"`
		URIs   []string `json:"redirect_uris"`
		Method string   `json:"token_endpoint_auth_method"`
	}
	if err := json.NewDecoder(res.Body).Decode(&got); err != nil || res.StatusCode != 201 || got.Method != "none" {
		w.Fatalf("registration: %d %+v, %v", res.StatusCode, got, err)
	}
	return got.ID
}

const redirectURI = "http://127.0.0.1:1234/callback"

func (w *world) config(client string) *oauth2.Config {
	return &oauth2.Config{
		ClientID: client, RedirectURL: redirectURI, Scopes: []string{"run", "files", "offline_access"},
		Endpoint: oauth2.Endpoint{
			AuthURL: w.url + authorizePath, TokenURL: w.url + tokenPath, DeviceAuthURL: w.url + deviceCode, AuthStyle: oauth2.AuthStyleInParams,
		},
	}
}

// allow signs in on the page of an authorization request, as a browser does, and
// returns the parameters that the client gets.
func (w *world) allow(authURL, token string) url.Values {
	w.Helper()
	u, err := url.Parse(authURL)
	if err != nil {
		w.Fatal(err)
	}
	status, _, page := w.do(http.MethodGet, u.Path, u.Query())
	if status != 200 {
		w.Fatalf("the page: %d %s", status, page)
	}
	form := hiddenFields(page)
	form.Set("token", token)
	form.Set("decision", "allow")
	status, header, page := w.do(http.MethodPost, authorizePath, form)
	if status != http.StatusSeeOther {
		w.Fatalf("the decision: %d %s", status, page)
	}
	to, err := url.Parse(header.Get("Location"))
	if err != nil {
		w.Fatal(err)
	}
	return to.Query()
}

func hiddenFields(page string) url.Values {
	form := url.Values{}
	for _, m := range regexp.MustCompile(`type="hidden" name="([^"]*)" value="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		form.Set(m[1], strings.NewReplacer("&#43;", "+", "&amp;", "&").Replace(m[2]))
	}
	return form
}

// signIn runs the whole authorization code flow and returns the client's tokens.
func (w *world) signIn(client string) *oauth2.Token {
	w.Helper()
	c, verifier := w.config(client), oauth2.GenerateVerifier()
	got := w.allow(c.AuthCodeURL("the state", oauth2.S256ChallengeOption(verifier)), w.token)
	if got.Get("state") != "the state" || got.Get("iss") != w.url {
		w.Fatalf("the answer is %v", got)
	}
	tok, err := c.Exchange(w.Context(), got.Get("code"), oauth2.VerifierOption(verifier))
	if err != nil {
		w.Fatal(err)
	}
	return tok
}

func (w *world) verify(token string) (auth.Identity, error) { return w.auth.Verify(w.Context(), token) }

// post sends a token request and returns the error code of the answer, or "".
func (w *world) post(path string, form url.Values) string {
	w.Helper()
	_, _, body := w.do(http.MethodPost, path, form)
	var got struct {
		Error string `json:"error"`
	}
	if body != "" {
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			w.Fatalf("%v: %s", err, body)
		}
	}
	return got.Error
}

func TestAuthorizationCode(t *testing.T) {
	w := newWorld(t)
	client := w.register(redirectURI)
	tok := w.signIn(client)
	id, err := w.verify(tok.AccessToken)
	want := auth.Identity{Principal: "token:ada", Scopes: []auth.Scope{auth.ScopeFiles, auth.ScopeRun}, Token: w.id, Grant: id.Grant, Expires: w.now.Add(accessTTL)}
	want.Expires = want.Expires.UTC()
	if d := cmp.Diff(want, id); err != nil || d != "" {
		t.Fatalf("%v, -want +got\n%s", err, d)
	}
	grants, err := w.store.Grants(t.Context())
	if err != nil || len(grants) != 1 || grants[0].ClientName != "Tester <b>" || grants[0].ID != id.Grant || id.Grant == "" {
		t.Errorf("the grants are %+v, %v", grants, err)
	}
	// The access token ends, and the refresh token gets another one.
	w.now = w.now.Add(accessTTL + time.Second)
	if _, err := w.verify(tok.AccessToken); sandbox.KindOf(err) != sandbox.Unauthenticated {
		t.Errorf("an expired access token: %v", err)
	}
	if _, err := w.verify(tok.RefreshToken); sandbox.KindOf(err) != sandbox.Unauthenticated {
		t.Errorf("a refresh token as an access token: %v", err)
	}
	renewed, err := w.config(client).TokenSource(t.Context(), &oauth2.Token{RefreshToken: tok.RefreshToken}).Token()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := w.verify(renewed.AccessToken); err != nil || again.Grant != id.Grant || again.Key() != id.Key() {
		t.Errorf("the renewed token: %+v, %v", again, err)
	}
	// The grant ends with the person's token.
	if _, err := w.auth.Revoke(t.Context(), "ada"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.verify(renewed.AccessToken); sandbox.KindOf(err) != sandbox.Unauthenticated {
		t.Errorf("after the revocation of the person's token: %v", err)
	}
	form := url.Values{"grant_type": {grantRefresh}, "client_id": {client}, "refresh_token": {renewed.RefreshToken}}
	if got := w.post(tokenPath, form); got != "invalid_grant" {
		t.Errorf("a refresh after the revocation of the person's token: %q", got)
	}
}

// TestRefusedAtPage sends requests that must not lead to a redirect.
func TestRefusedAtPage(t *testing.T) {
	w := newWorld(t)
	client := w.register(redirectURI, "https://app.example/cb")
	good := url.Values{
		"response_type": {"code"}, "client_id": {client}, "redirect_uri": {redirectURI}, "state": {"s"},
		"code_challenge": {oauth2.S256ChallengeFromVerifier("v")}, "code_challenge_method": {"S256"},
	}
	for name, c := range map[string]struct {
		change map[string]string
		status int
		text   string // in the page, or the error that the client gets
	}{
		"right":               {nil, 200, "127.0.0.1:1234"},
		"another port":        {map[string]string{"redirect_uri": "http://127.0.0.1:99/callback"}, 200, "127.0.0.1:99"},
		"website":             {map[string]string{"redirect_uri": "https://app.example/cb"}, 200, "Allow it only if you began"},
		"unknown client":      {map[string]string{"client_id": "cli_x"}, 404, "not registered"},
		"document":            {map[string]string{"client_id": "https://app.example/client.json"}, 404, "does not fetch"},
		"another path":        {map[string]string{"redirect_uri": "http://127.0.0.1:1234/evil"}, 400, "has not registered"},
		"another host":        {map[string]string{"redirect_uri": "https://evil.example/cb"}, 400, "has not registered"},
		"another query":       {map[string]string{"redirect_uri": redirectURI + "?a=b"}, 400, "has not registered"},
		"localhost":           {map[string]string{"redirect_uri": "http://localhost:1234/callback"}, 400, "has not registered"},
		"none of two":         {map[string]string{"redirect_uri": ""}, 400, "has not registered"},
		"wrong for a website": {map[string]string{"code_challenge": "", "redirect_uri": "https://app.example/cb"}, 400, "app.example"},
		"no PKCE":             {map[string]string{"code_challenge": ""}, 303, "invalid_request"},
		"plain PKCE":          {map[string]string{"code_challenge_method": "plain"}, 303, "invalid_request"},
		"implicit":            {map[string]string{"response_type": "token"}, 303, "unsupported_response_type"},
		"admin":               {map[string]string{"scope": "admin"}, 303, "invalid_scope"},
		"another resource":    {map[string]string{"resource": "https://other.example/mcp"}, 303, "invalid_target"},
		"this resource":       {map[string]string{"resource": w.url + "/mcp"}, 200, "Tester"},
		"this server":         {map[string]string{"resource": w.url + "/"}, 200, "Tester"},
		"resource by a trick": {map[string]string{"resource": w.url + ".evil.example/"}, 303, "invalid_target"},
	} {
		form := url.Values{}
		for name, v := range good {
			form.Set(name, v[0])
		}
		for name, v := range c.change {
			form.Set(name, v)
		}
		status, header, page := w.do(http.MethodGet, authorizePath, form)
		text := page
		if status == 303 {
			u, err := url.Parse(header.Get("Location"))
			if err != nil {
				t.Fatal(err)
			}
			text = u.Query().Get("error")
			if u.Host != "127.0.0.1:1234" || u.Query().Get("state") != "s" || u.Query().Get("iss") != w.url {
				t.Errorf("%s: the redirect leads to %s", name, u)
			}
		} else if csp := header.Get("Content-Security-Policy"); !strings.Contains(csp, "frame-ancestors 'none'") || !strings.Contains(csp, "default-src 'none'") {
			t.Errorf("%s: the policy is %q", name, csp)
		}
		if status != c.status || !strings.Contains(text, c.text) {
			t.Errorf("%s: %d %s, want %d %q", name, status, text, c.status, c.text)
		}
		if strings.Contains(page, "Tester <b>") {
			t.Errorf("%s: the client's name is HTML in the page", name)
		}
	}
}

// TestRedirectsToThisServer names redirect URIs at which programs of sandboxes may
// listen.
func TestRedirectsToThisServer(t *testing.T) {
	w := newWorld(t)
	for uri, own := range map[string]bool{
		"/ports/sbx/3000/cb": true, "http://localhost:4444/cb": true, "https://3000-sbx.preview.example/cb": true, "https://preview.example/cb": true,
		"http://localhost:5555/cb": false, "https://preview.example.com/cb": false, "cursor://preview.example/cb": false,
	} {
		if strings.HasPrefix(uri, "/") {
			uri = w.url + uri
		}
		status, _, page := w.do(http.MethodGet, authorizePath, url.Values{
			"response_type": {"code"}, "client_id": {w.register(uri)}, "redirect_uri": {uri},
			"code_challenge": {oauth2.S256ChallengeFromVerifier("v")}, "code_challenge_method": {"S256"},
		})
		if refused := status == 400 && strings.Contains(page, "leads to this server"); refused != own || !own && status != 200 {
			t.Errorf("%s: %d %s", uri, status, page)
		}
	}
	for base, own := range map[string]bool{"https://box.example": true, "https://BOX.example:8443/glovebox": true, "https://other.example": false} {
		if got := w.server.isOwn("https://box.example/ports/sbx/3000/cb", base); got != own {
			t.Errorf("%s: %v", base, got)
		}
	}
}

// TestStrangersAreBounded has a stranger send as much as it can. A client that is
// signed in, and a person with a token, go on.
func TestStrangersAreBounded(t *testing.T) {
	w := newWorld(t)
	client := w.register(redirectURI)
	tok := w.signIn(client)
	verifier := oauth2.GenerateVerifier()
	refused := 0
	for range requestBurst + 100 {
		if status, _, _ := w.do(http.MethodGet, devicePath, nil); status == http.StatusTooManyRequests {
			refused++
		}
	}
	if refused == 0 {
		t.Fatal("requests of strangers are not bounded")
	}
	if _, err := w.config(client).TokenSource(t.Context(), &oauth2.Token{RefreshToken: tok.RefreshToken}).Token(); err != nil {
		t.Errorf("a refresh: %v", err)
	}
	form := url.Values{
		"response_type": {"code"}, "client_id": {client}, "redirect_uri": {redirectURI}, "decision": {"allow"}, "token": {w.token},
		"code_challenge": {oauth2.S256ChallengeFromVerifier(verifier)}, "code_challenge_method": {"S256"},
	}
	status, header, page := w.do(http.MethodPost, authorizePath, form)
	if status != 303 {
		t.Fatalf("a person with a token: %d %s", status, page)
	}
	to, err := url.Parse(header.Get("Location"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.config(client).Exchange(t.Context(), to.Query().Get("code"), oauth2.VerifierOption(verifier)); err != nil {
		t.Errorf("the exchange of a code: %v", err)
	}
}

// TestGrantsAreBounded has one token allow more clients than it may.
func TestGrantsAreBounded(t *testing.T) {
	w := newWorld(t)
	put := func(id string) {
		t.Helper()
		w.now = w.now.Add(time.Second)
		g := sandbox.Grant{ID: id, TokenID: w.id, ClientID: "cli", Created: w.now, Expires: w.now.Add(grantTTL)}
		if err := w.store.PutGrant(t.Context(), g, 3); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"a", "b", "c", "d"} {
		put(id)
	}
	list, err := w.store.Grants(t.Context())
	if err != nil || len(list) != 3 || list[0].ID != "b" || list[2].ID != "d" {
		t.Errorf("the grants are %+v, %v", list, err)
	}
}

// TestTokensAtPage types tokens that may not sign in.
func TestTokensAtPage(t *testing.T) {
	w := newWorld(t)
	client := w.register(redirectURI)
	grant := w.signIn(client)
	limited, _, err := w.auth.Create(t.Context(), "limited", auth.ScopeFiles)
	if err != nil {
		t.Fatal(err)
	}
	admin, _, err := w.auth.Create(t.Context(), "root", auth.ScopeAdmin)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		token, scope string
		status       int
		text         string
	}{
		"wrong":                   {"gbx_x", "", 401, "is not valid"},
		"none":                    {"", "", 401, "is not valid"},
		"access token":            {grant.AccessToken, "", 403, "cannot sign in"},
		"token of the server":     {serverToken, "", 403, "cannot sign in"},
		"scope that it lacks":     {limited, "run", 403, "none of the scopes"},
		"one of two scopes":       {limited, "run files", 303, "files"},
		"admin":                   {admin, "", 303, "run files"},
		"spaces around the token": {"  " + w.token + "\n", "run", 303, "run"},
	} {
		verifier := oauth2.GenerateVerifier()
		form := url.Values{
			"response_type": {"code"}, "client_id": {client}, "redirect_uri": {redirectURI}, "scope": {c.scope}, "decision": {"allow"},
			"code_challenge": {oauth2.S256ChallengeFromVerifier(verifier)}, "code_challenge_method": {"S256"}, "token": {c.token},
		}
		status, header, page := w.do(http.MethodPost, authorizePath, form)
		if status == 303 {
			u, err := url.Parse(header.Get("Location"))
			if err != nil {
				t.Fatal(err)
			}
			tok, err := w.config(client).Exchange(t.Context(), u.Query().Get("code"), oauth2.VerifierOption(verifier))
			if err != nil {
				t.Fatal(err)
			}
			page = fmt.Sprint(tok.Extra("scope"))
		}
		if status != c.status || !strings.Contains(page, c.text) {
			t.Errorf("%s: %d %s, want %d %q", name, status, page, c.status, c.text)
		}
		if c.token != "" && strings.Contains(page, c.token) {
			t.Errorf("%s: the page shows the token", name)
		}
	}
	status, header, _ := w.do(http.MethodPost, authorizePath, url.Values{
		"response_type": {"code"}, "client_id": {client}, "redirect_uri": {redirectURI}, "decision": {"deny"},
		"code_challenge": {oauth2.S256ChallengeFromVerifier("v")}, "code_challenge_method": {"S256"},
	})
	if status != 303 || !strings.Contains(header.Get("Location"), "error=access_denied") {
		t.Errorf("a refusal: %d %s", status, header.Get("Location"))
	}
}

// TestCodeOnce exchanges codes wrongly, late and twice.
func TestCodeOnce(t *testing.T) {
	w := newWorld(t)
	client, other := w.register(redirectURI), w.register(redirectURI)
	verifier := oauth2.GenerateVerifier()
	code := func() string {
		return w.allow(w.config(client).AuthCodeURL("s", oauth2.S256ChallengeOption(verifier)), w.token).Get("code")
	}
	form := func(code string, change ...string) url.Values {
		f := url.Values{"grant_type": {grantCode}, "client_id": {client}, "redirect_uri": {redirectURI}, "code": {code}, "code_verifier": {verifier}}
		for i := 0; i < len(change); i += 2 {
			f.Set(change[i], change[i+1])
		}
		return f
	}
	for name, change := range map[string][]string{
		"verifier": {"code_verifier", "x"}, "client": {"client_id", other}, "redirect": {"redirect_uri", "http://127.0.0.1:99/callback"},
	} {
		c := code()
		if got := w.post(tokenPath, form(c, change...)); got != "invalid_grant" {
			t.Errorf("wrong %s: %q", name, got)
		}
		if got := w.post(tokenPath, form(c)); got != "invalid_grant" {
			t.Errorf("a second attempt after a wrong %s: %q", name, got)
		}
	}
	late := code()
	w.now = w.now.Add(codeTTL)
	if got := w.post(tokenPath, form(late)); got != "invalid_grant" {
		t.Errorf("a late exchange: %q", got)
	}
	for name, want := range map[string]string{"grant_type": "unsupported_grant_type", "client_id": "invalid_request", "code": "invalid_grant"} {
		if got := w.post(tokenPath, form(code(), name, "")); got != want {
			t.Errorf("without %s: %q, want %q", name, got, want)
		}
	}
	if got := w.post(tokenPath, form(code(), "resource", "https://other.example")); got != "invalid_target" {
		t.Errorf("another resource: %q", got)
	}
	c := code()
	tok, err := w.config(client).Exchange(t.Context(), c, oauth2.VerifierOption(verifier))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.verify(tok.AccessToken); err != nil {
		t.Error(err)
	}
	if got := w.post(tokenPath, form(c)); got != "invalid_grant" {
		t.Errorf("a second exchange: %q", got)
	}
	if _, err := w.verify(tok.AccessToken); sandbox.KindOf(err) != sandbox.Unauthenticated {
		t.Errorf("after the second exchange, the first tokens are accepted: %v", err)
	}
}

// TestRefreshTwice uses a refresh token again: soon, as a client whose connection
// broke, and late, as a thief.
func TestRefreshTwice(t *testing.T) {
	w := newWorld(t)
	client := w.register(redirectURI)
	first := w.signIn(client)
	source := func(tok string) (*oauth2.Token, error) {
		return w.config(client).TokenSource(t.Context(), &oauth2.Token{RefreshToken: tok}).Token()
	}
	w.now = w.now.Add(time.Minute)
	if _, err := source(first.RefreshToken); err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(replayGrace - time.Second)
	second, err := source(first.RefreshToken)
	if err != nil {
		t.Fatalf("the repeated refresh: %v", err)
	}
	if got := w.post(tokenPath, url.Values{"grant_type": {grantRefresh}, "client_id": {w.register(redirectURI)}, "refresh_token": {second.RefreshToken}}); got != "invalid_grant" {
		t.Errorf("another client's refresh token: %q", got)
	}
	// The number of stored tokens stays bounded.
	for range 50 {
		w.now = w.now.Add(time.Second)
		if second, err = source(second.RefreshToken); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.verify(second.AccessToken); err != nil {
		t.Error(err)
	}
	w.now = w.now.Add(2 * replayGrace)
	if _, err := source(first.RefreshToken); err == nil {
		t.Error("a refresh token that was replaced long ago is accepted")
	}
	last, err := source(second.RefreshToken)
	if err != nil {
		t.Fatal(err) // the first one is forgotten by now
	}
	w.now = w.now.Add(2 * replayGrace)
	if _, err := source(second.RefreshToken); err == nil {
		t.Error("a replaced refresh token is accepted after the grace period")
	}
	if _, err := w.verify(last.AccessToken); sandbox.KindOf(err) != sandbox.Unauthenticated {
		t.Errorf("after the use of a replaced refresh token: %v", err)
	}
	if grants, err := w.store.Grants(t.Context()); err != nil || len(grants) != 0 {
		t.Errorf("the grants are %+v, %v", grants, err)
	}
}

func TestGrantEndsUnused(t *testing.T) {
	w := newWorld(t)
	client := w.register(redirectURI)
	tok := w.signIn(client)
	w.now = w.now.Add(grantTTL + time.Second)
	if got := w.post(tokenPath, url.Values{"grant_type": {grantRefresh}, "client_id": {client}, "refresh_token": {tok.RefreshToken}}); got != "invalid_grant" {
		t.Errorf("a refresh after the grant's end: %q", got)
	}
}

func TestRevoke(t *testing.T) {
	w := newWorld(t)
	client := w.register(redirectURI)
	for _, which := range []string{"access", "refresh"} {
		tok := w.signIn(client)
		id, err := w.verify(tok.AccessToken)
		if err != nil {
			t.Fatal(err)
		}
		gone, err := w.auth.Revoked(t.Context())
		if err != nil || gone(id) {
			t.Errorf("%s: a grant in force counts as revoked, %v", which, err)
		}
		text := map[string]string{"access": tok.AccessToken, "refresh": tok.RefreshToken}[which]
		if got := w.post(revokePath, url.Values{"token": {text}}); got != "" {
			t.Errorf("%s: %q", which, got)
		}
		if _, err := w.verify(tok.AccessToken); sandbox.KindOf(err) != sandbox.Unauthenticated {
			t.Errorf("%s: the access token is accepted: %v", which, err)
		}
		if gone, err = w.auth.Revoked(t.Context()); err != nil || !gone(id) {
			t.Errorf("%s: streams of the grant go on, %v", which, err)
		}
	}
	if got := w.post(revokePath, url.Values{"token": {"unknown"}}); got != "" {
		t.Errorf("an unknown token: %q", got)
	}
	if _, err := w.verify(w.token); err != nil {
		t.Errorf("the person's token: %v", err)
	}
}

func TestDevice(t *testing.T) {
	w := newWorld(t)
	c := w.config(w.register())
	for _, decision := range []string{"allow", "deny"} {
		da, err := c.DeviceAuth(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(da.VerificationURIComplete, w.url+devicePath+"?user_code=") || da.Interval != 5 {
			t.Errorf("the answer is %+v", da)
		}
		poll := url.Values{"grant_type": {grantDevice}, "client_id": {c.ClientID}, "device_code": {da.DeviceCode}}
		for _, want := range []string{"authorization_pending", "slow_down"} {
			if got := w.post(tokenPath, poll); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
		if status, _, page := w.do(http.MethodGet, devicePath, nil); status != 200 || !strings.Contains(page, "user_code") {
			t.Errorf("the page: %d %s", status, page)
		}
		if status, _, page := w.do(http.MethodGet, devicePath, url.Values{"user_code": {"XXXX-XXXX"}}); status != 404 || !strings.Contains(page, "No device waits") {
			t.Errorf("a wrong code: %d %s", status, page)
		}
		typed := strings.ToLower(strings.ReplaceAll(da.UserCode, "-", " "))
		status, _, page := w.do(http.MethodPost, devicePath, url.Values{"user_code": {typed}})
		if status != 200 || !strings.Contains(page, da.UserCode) || !strings.Contains(page, "Tester &lt;b&gt;") {
			t.Fatalf("the page: %d %s", status, page)
		}
		form := hiddenFields(page)
		form.Set("decision", decision)
		form.Set("token", "gbx_wrong")
		if status, _, page = w.do(http.MethodPost, devicePath, form); decision == "allow" && (status != 401 || !strings.Contains(page, "not valid")) {
			t.Errorf("a wrong token: %d %s", status, page)
		}
		form.Set("token", w.token)
		status, _, page = w.do(http.MethodPost, devicePath, form)
		w.now = w.now.Add(20 * time.Second)
		if decision == "deny" {
			if got := w.post(tokenPath, poll); got != "access_denied" {
				t.Errorf("after a refusal: %q", got)
			}
			continue
		}
		if status != 200 || !strings.Contains(page, "is signed in") {
			t.Errorf("the decision: %d %s", status, page)
		}
		other := url.Values{"grant_type": {grantDevice}, "client_id": {"cli_x"}, "device_code": {da.DeviceCode}}
		if got := w.post(tokenPath, other); got != "invalid_grant" {
			t.Errorf("another client: %q", got)
		}
		tok, err := c.DeviceAccessToken(context.WithoutCancel(t.Context()), &oauth2.DeviceAuthResponse{DeviceCode: da.DeviceCode, Interval: 1})
		if err != nil {
			t.Fatal(err)
		}
		if id, err := w.verify(tok.AccessToken); err != nil || id.Principal != "token:ada" {
			t.Errorf("the token: %+v, %v", id, err)
		}
		if got := w.post(tokenPath, poll); got != "expired_token" {
			t.Errorf("a second request: %q", got)
		}
	}
	da, err := c.DeviceAuth(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(deviceTTL)
	if got := w.post(tokenPath, url.Values{"grant_type": {grantDevice}, "client_id": {c.ClientID}, "device_code": {da.DeviceCode}}); got != "expired_token" {
		t.Errorf("after the end: %q", got)
	}
}

// TestRegistration checks which redirect URIs a client may have.
func TestRegistration(t *testing.T) {
	w := newWorld(t)
	for uri, ok := range map[string]bool{
		"https://app.example/cb": true, "http://localhost:1/cb": true, "http://[::1]/cb": true, "http://127.0.0.1/": true,
		"https://claud\u0435.ai/cb": false, "https://evil%E2%80%8Bx.com/cb": false, "https://evil.com;sandbox/cb": false, "https://EVIL.example/": false,
		"https://[fe80::1%25eth0]/cb": false, "https://a..b/cb": false, "https://xn--claud-6ta.ai/cb": true,
		"googlechromes://evil.com/cb": false, "x-safari-https://evil.com/cb": false, "microsoft-edge://evil.com": false, "intent://evil.com": false,
		"cursor://anysphere.cursor-retrieval/oauth/callback": true, "com.example.app:/cb": true,
		"http://app.example/cb": false, "javascript:alert(1)": false, "JavaScript://%0aalert(1)": false, "data:text/html,x": false,
		"https://app.example/cb#f": false, "https://user@app.example/": false, "//app.example": false, "": false, "https:///cb": false,
		"file:///etc/passwd": false, "https://app.example/" + strings.Repeat("a", maxURI): false,
	} {
		if err := checkRedirect(uri); (err == nil) != ok {
			t.Errorf("%.60s: %v, want %v", uri, err, ok)
		}
	}
	for name, body := range map[string]string{
		"no JSON": "x", "no URI": `{"client_name":"a"}`, "many URIs": `{"redirect_uris":["https://a/1"` + strings.Repeat(`,"https://a/1"`, maxURIs) + `]}`,
		"a long body": `{"client_name":"` + strings.Repeat("a", maxForm) + `"}`,
	} {
		res, err := http.Post(w.url+registerPath, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != 400 {
			t.Errorf("%s: %d", name, res.StatusCode)
		}
	}
	// Registrations of strangers are bounded.
	refused := 0
	for range registerBurst + 10 {
		res, err := http.Post(w.url+registerPath, "application/json", strings.NewReader(`{"redirect_uris":["https://a.example/"]}`))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode == http.StatusTooManyRequests && res.Header.Get("Retry-After") != "" {
			refused++
		}
	}
	if refused == 0 {
		t.Error("registrations are not bounded")
	}
}

// TestClientsAreBounded registers more clients than are kept. The client with a
// grant stays.
func TestClientsAreBounded(t *testing.T) {
	w := newWorld(t)
	client := w.register(redirectURI)
	w.signIn(client)
	ids := []string{}
	for range 5 {
		w.now = w.now.Add(time.Second)
		c := sandbox.OAuthClient{ID: sandbox.NewOAuthClientID(), RedirectURIs: []string{redirectURI}, Created: w.now}
		if err := w.store.PutOAuthClient(t.Context(), c, 3); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, c.ID)
	}
	for id, ok := range map[string]bool{client: true, ids[0]: false, ids[1]: false, ids[2]: false, ids[3]: true, ids[4]: true} {
		if _, err := w.store.OAuthClient(t.Context(), id); (err == nil) != ok {
			t.Errorf("%s: %v, want %v", id, err, ok)
		}
	}
}

func TestPendingIsBounded(t *testing.T) {
	now := time.Now()
	var p pending[*code]
	put := func(owner string, n int) {
		p.put(fmt.Sprint(owner, n), owner, &code{expires: now.Add(time.Minute)}, now)
	}
	for n := range maxOfOwner + 5 { // the oldest of one owner make room
		put("a", n)
	}
	if len(p.set) != maxOfOwner || p.has("a0") || p.has("a4") || !p.has("a5") {
		t.Errorf("one owner has %d values", len(p.set))
	}
	for n := range maxPending {
		put(fmt.Sprint("stranger ", n), 0)
	}
	if len(p.set) != maxPending || p.owners["a"] != 1 || !p.has(fmt.Sprint("a", maxOfOwner+4)) {
		t.Errorf("there are %d values, %d of the owner with the most", len(p.set), p.owners["a"])
	}
	now = now.Add(time.Minute)
	put("b", 0)
	if len(p.set) != 1 || len(p.owners) != 1 {
		t.Errorf("values that have ended stay: %d of %d owners", len(p.set), len(p.owners))
	}
}

func TestMetadata(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{metadataPath, metadataPath + "/mcp"} {
		status, _, body := w.do(http.MethodGet, path, nil)
		var got map[string]any
		if err := json.Unmarshal([]byte(body), &got); err != nil || status != 200 {
			t.Fatalf("%d %s, %v", status, body, err)
		}
		if got["issuer"] != w.url || got["registration_endpoint"] != w.url+"/register" || got["client_id_metadata_document_supported"] != false {
			t.Errorf("%s: %v", path, got)
		}
	}
	for path, method := range map[string]string{tokenPath: http.MethodGet, registerPath: http.MethodGet, authorizePath: http.MethodPut, devicePath: http.MethodDelete} {
		if status, header, _ := w.do(method, path, nil); status != 405 || header.Get("Allow") == "" {
			t.Errorf("%s %s: %d", method, path, status)
		}
	}
}
