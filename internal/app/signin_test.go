package app

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/oauth2"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestSignIn lets a client in as MCP's specification describes: from the challenge
// to the metadata, the registration, the page and the tokens. The client is refused
// when the person's token is revoked.
func TestSignIn(t *testing.T) {
	sys, base := serveHTTP(t, func(o *Options) { o.Config.Server.SignIn.Enabled = true })
	text, _, err := sys.auth.Create(t.Context(), "ada")
	if err != nil {
		t.Fatal(err)
	}
	status, challenge, _ := ask(t, base, "")
	found := regexp.MustCompile(`resource_metadata="([^"]+)"`).FindStringSubmatch(challenge)
	if status != 401 || found == nil || !strings.Contains(challenge, `scope="run files"`) {
		t.Fatalf("%d, challenge %s", status, challenge)
	}
	get := func(url string, v any) {
		t.Helper()
		res, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if err := json.NewDecoder(res.Body).Decode(v); err != nil || res.StatusCode/100 != 2 {
			t.Fatalf("%s: %d, %v", url, res.StatusCode, err)
		}
	}
	var resource struct {
		Resource string   `json:"resource"`
		Servers  []string `json:"authorization_servers"`
	}
	get(found[1], &resource)
	if resource.Resource != base+"/mcp" || len(resource.Servers) != 1 || resource.Servers[0] != base {
		t.Fatalf("the resource is %+v", resource)
	}
	var server struct {
		Authorize string `json:"authorization_endpoint"`
		Token     string `json:"token_endpoint"`
		Register  string `json:"registration_endpoint"`
	}
	get(base+"/.well-known/oauth-authorization-server", &server)
	const redirect = "http://localhost:4321/callback"
	res, err := http.Post(server.Register, "application/json", strings.NewReader(`{"client_name":"Test","redirect_uris":["`+redirect+`"]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var client struct {
		ID string `json:"client_id"`
	}
	if err := json.NewDecoder(res.Body).Decode(&client); err != nil || res.StatusCode != 201 {
		t.Fatalf("registration: %d, %v", res.StatusCode, err)
	}
	verifier := oauth2.GenerateVerifier()
	form := url.Values{
		"response_type": {"code"}, "client_id": {client.ID}, "redirect_uri": {redirect}, "state": {"s"}, "resource": {resource.Resource},
		"code_challenge": {oauth2.S256ChallengeFromVerifier(verifier)}, "code_challenge_method": {"S256"}, "token": {text}, "decision": {"allow"},
	}
	post := func(origin string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.Authorize, strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", origin)
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
		return res
	}
	if res := post("https://evil.example"); res.StatusCode != 403 {
		t.Errorf("a form of another page: %d", res.StatusCode)
	}
	res = post(base)
	to, err := url.Parse(res.Header.Get("Location"))
	if err != nil || res.StatusCode != 303 {
		t.Fatalf("the decision: %d, %v", res.StatusCode, err)
	}
	c := oauth2.Config{ClientID: client.ID, RedirectURL: redirect, Endpoint: oauth2.Endpoint{TokenURL: server.Token, AuthStyle: oauth2.AuthStyleInParams}}
	tok, err := c.Exchange(t.Context(), to.Query().Get("code"), oauth2.VerifierOption(verifier), oauth2.SetAuthURLParam("resource", resource.Resource))
	if err != nil {
		t.Fatal(err)
	}
	if status, _, body := ask(t, base, tok.AccessToken); status != 200 || !strings.Contains(body, "run_code") {
		t.Errorf("with the access token: %d %s", status, body)
	}
	tokens := &Tokens{store: sys.store, auth: sys.auth}
	grants, err := tokens.Grants(t.Context())
	if err != nil || len(grants) != 1 || grants[0].ClientName != "Test" || grants[0].Principal != "token:ada" {
		t.Fatalf("the grants are %+v, %v", grants, err)
	}
	if _, err := tokens.EndGrant(t.Context(), grants[0].ID); err != nil {
		t.Fatal(err)
	}
	if status, _, _ := ask(t, base, tok.AccessToken); status != 401 {
		t.Errorf("after the end of the grant: %d", status)
	}
	if _, err := tokens.EndGrant(t.Context(), grants[0].ID); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("a second end: %v", err)
	}
	to, err = url.Parse(post(base).Header.Get("Location"))
	if err != nil {
		t.Fatal(err)
	}
	if tok, err = c.Exchange(t.Context(), to.Query().Get("code"), oauth2.VerifierOption(verifier)); err != nil {
		t.Fatal(err)
	}
	if status, _, _ := ask(t, base, tok.AccessToken); status != 200 {
		t.Errorf("with the access token of a new grant: %d", status)
	}
	if _, err := sys.auth.Revoke(t.Context(), "ada"); err != nil {
		t.Fatal(err)
	}
	if status, challenge, _ := ask(t, base, tok.AccessToken); status != 401 || !strings.Contains(challenge, "invalid_token") {
		t.Errorf("after the revocation of the person's token: %d %s", status, challenge)
	}
}

// TestSignInOff leaves the sign-in off, which is the default.
func TestSignInOff(t *testing.T) {
	_, base := serveHTTP(t, func(*Options) {})
	for _, path := range []string{"/.well-known/oauth-authorization-server", "/register", "/authorize", "/token"} {
		res, err := http.Get(base + path)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != 404 {
			t.Errorf("%s: %d", path, res.StatusCode)
		}
	}
}
