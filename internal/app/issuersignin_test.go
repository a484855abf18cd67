package app

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/usage"
)

// pages is the address of the dashboard in tests of sign-ins at an issuer.
const pages = "http://localhost:18080"

// A visitor is a browser at a server that knows an issuer.
type visitor struct {
	*testing.T
	http.Client
}

// visit returns a browser at the server with the address at.
func visit(t *testing.T, at string) *visitor {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, strings.TrimPrefix(at, "http://"))
	}}
	t.Cleanup(web.CloseIdleConnections)
	return &visitor{t, http.Client{Jar: jar, Transport: web, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

func (v *visitor) get(path string) (*http.Response, string) {
	v.Helper()
	res, err := v.Get(pages + path)
	if err != nil {
		v.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		v.Fatal(err)
	}
	return res, string(body)
}

// begin begins a sign-in, and returns the parameters with which the issuer is asked.
func (v *visitor) begin(o *oidcIssuer, next string) url.Values {
	v.Helper()
	res, body := v.get("/ui/issuer?next=" + url.QueryEscape(next))
	to, err := res.Location()
	if err != nil || res.StatusCode != http.StatusSeeOther || !strings.HasPrefix(to.String(), o.url+"/authorize?") {
		v.Fatalf("begin: %d to %v, %v\n%s", res.StatusCode, to, err, body)
	}
	return to.Query()
}

// agree makes a code, for which the issuer answers with tokens of ada.
func (o *oidcIssuer) agree(t *testing.T, asked url.Values, idToken, accessToken map[string]any) string {
	t.Helper()
	claims := map[string]any{"aud": "pages", "scope": nil, "nonce": asked.Get("nonce")}
	maps.Copy(claims, idToken)
	o.mu.Lock()
	defer o.mu.Unlock()
	answer := map[string]any{"token_type": "Bearer", "expires_in": 60,
		"id_token":     token(t, "one", o.keys["one"], o.claims(claims)),
		"access_token": token(t, "one", o.keys["one"], o.claims(accessToken))}
	if o.codes == nil {
		o.codes = map[string]grant{}
	}
	o.codes["a code"] = grant{asked.Get("code_challenge"), answer}
	return "a code"
}

// back returns the path to which the issuer sends a person with a code.
func back(asked url.Values, code string) string {
	return "/ui/issuer/back?" + url.Values{"code": {code}, "state": {asked.Get("state")}}.Encode()
}

func withClient(o *oidcIssuer) func(*Options) {
	return func(opts *Options) {
		withIssuer(o)(opts)
		c := &opts.Config.Server
		c.PublicURL = pages
		c.OIDC.Client.ID, c.OIDC.Client.Secret, c.OIDC.Client.Parameters = "pages", "of the client", map[string]string{"audience": "box"}
		c.OIDC.Groups.Claim, c.OIDC.Groups.Map = "teams", map[string]string{"Engineering": "eng"}
		c.OIDC.Scopes.Read = "box.read"
	}
}

// TestSignInAtIssuer has a person sign in to the dashboard, who then is the principal
// of their bearer tokens, in the same groups and with the same scopes.
func TestSignInAtIssuer(t *testing.T) {
	o := startIssuer(t)
	clock := startClock()
	s, at := serveHTTP(t, func(opts *Options) {
		withClient(o)(opts)
		opts.now = clock.now
	})
	if err := s.store.SetLimits(t.Context(), []AccountLimit{{Group: "eng", Limit: usage.LimitSandboxes, Value: 5}}); err != nil {
		t.Fatal(err)
	}
	v := visit(t, at)
	if _, body := v.get("/ui/signin?next=/ui/usage"); !strings.Contains(body, `href="/ui/issuer?next=%2Fui%2Fusage"`) || !strings.Contains(body, "Sign in with "+strings.TrimPrefix(o.url, "http://")) {
		t.Errorf("the page is\n%s", body)
	}
	asked := v.begin(o, "/ui/usage")
	for name, want := range map[string]string{
		"client_id": "pages", "redirect_uri": pages + "/ui/issuer/back", "response_type": "code", "scope": "openid box.run box.files",
		"code_challenge_method": "S256", "audience": "box", "tenant": "1", "client_secret": "",
	} {
		if asked.Get(name) != want {
			t.Errorf("%s is %q, want %q", name, asked.Get(name), want)
		}
	}
	if len(asked.Get("state")) < 40 || len(asked.Get("nonce")) < 40 || asked.Get("state") == asked.Get("nonce") {
		t.Errorf("state %q, nonce %q", asked.Get("state"), asked.Get("nonce"))
	}
	code := o.agree(t, asked, map[string]any{"exp": clock.now().Add(time.Hour).Unix()}, map[string]any{"teams": []string{"Engineering"}, "exp": clock.now().Add(time.Minute).Unix()})
	if res, body := v.get(back(asked, code)); res.StatusCode != 200 || !strings.Contains(body, `content="0;url=/ui/arrived"`) {
		t.Fatalf("back: %d\n%s", res.StatusCode, body)
	}
	res, body := v.get("/ui/arrived")
	if res.StatusCode != 303 || res.Header.Get("Location") != "/ui/usage" {
		t.Fatalf("arrived: %d to %s\n%s", res.StatusCode, res.Header.Get("Location"), body)
	}
	for _, c := range res.Cookies() {
		if c.Name == "glovebox_session" && (c.SameSite != http.SameSiteStrictMode || !c.HttpOnly) {
			t.Errorf("the session's cookie is %v", c)
		}
	}
	ada := sandbox.Principal("oidc:" + o.url + "#ada")
	if _, body := v.get("/ui/usage"); !strings.Contains(body, string(ada)) {
		t.Errorf("the person is another one:\n%s", body)
	}
	members, err := s.store.Groups(t.Context())
	if err != nil || len(members) != 1 || len(members[0].Members) != 1 || members[0].Members[0] != ada {
		t.Errorf("groups %+v, %v", members, err)
	}
	if res, _ := v.get(back(asked, code)); res.StatusCode != 401 {
		t.Errorf("the same answer again: %d", res.StatusCode)
	}
	clock.move(59 * time.Minute)
	if res, _ := v.get("/ui/"); res.StatusCode != 200 {
		t.Errorf("before the ID token ends: %d", res.StatusCode)
	}
	clock.move(time.Minute)
	if res, _ := v.get("/ui/"); res.StatusCode != 303 {
		t.Errorf("after the ID token ended: %d", res.StatusCode)
	}
}

// TestSignInAtIssuerRefused has answers of the issuer, and forged ones, that are refused.
func TestSignInAtIssuerRefused(t *testing.T) {
	o := startIssuer(t)
	stranger, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	agreed := func(idToken, accessToken map[string]any) func(*visitor, url.Values) string {
		return func(v *visitor, asked url.Values) string {
			return back(asked, o.agree(v.T, asked, idToken, accessToken))
		}
	}
	for name, tt := range map[string]struct {
		answer func(*visitor, url.Values) string // the path to which the person comes back
		status int
		want   string
	}{
		"another state": {func(v *visitor, asked url.Values) string {
			code := o.agree(v.T, asked, nil, nil)
			asked.Set("state", "of-another-flow")
			return back(asked, code)
		}, 401, "not begun in this browser"},
		"another browser": {func(v *visitor, asked url.Values) string {
			path := back(asked, o.agree(v.T, asked, nil, nil))
			jar, err := cookiejar.New(nil)
			if err != nil {
				v.Fatal(err)
			}
			v.Jar = jar
			return path
		}, 401, "not begun in this browser"},
		"another nonce":          {agreed(map[string]any{"nonce": "other"}, nil), 401, "its nonce differs"},
		"no nonce":               {agreed(map[string]any{"nonce": nil}, nil), 401, "its nonce differs"},
		"another audience":       {agreed(map[string]any{"aud": "box"}, nil), 401, "audience"},
		"another party":          {agreed(map[string]any{"azp": "other"}, nil), 401, "another client"},
		"two audiences":          {agreed(map[string]any{"aud": []string{"pages", "other"}}, nil), 401, "another client"},
		"expired":                {agreed(map[string]any{"exp": time.Now().Add(-time.Second).Unix()}, nil), 401, "expired"},
		"another issuer":         {agreed(map[string]any{"iss": "https://evil.example"}, nil), 401, "issued by"},
		"another access token":   {agreed(map[string]any{"at_hash": "AAAAAAAAAAAAAAAAAAAAAA"}, nil), 401, "not of this access token"},
		"a client's token":       {agreed(nil, map[string]any{"aud": "other"}), 401, "audience"},
		"another person's token": {agreed(nil, map[string]any{"sub": "eve"}), 401, "another subject"},
		"no scope":               {agreed(nil, map[string]any{"scope": "openid"}), 403, "none of the scopes"},
		"a code of no sign-in":   {func(_ *visitor, asked url.Values) string { return back(asked, "stolen") }, 401, "the code &lt;b&gt;is not good"},
		"no code":                {func(_ *visitor, asked url.Values) string { return back(asked, "") }, 401, "no code"},
		"a code of another flow": {func(v *visitor, asked url.Values) string {
			other := maps.Clone(asked)
			other.Set("code_challenge", "of-another")
			return back(asked, o.agree(v.T, other, nil, nil))
		}, 401, "the code &lt;b&gt;is not good"},
		"a stranger's key": {func(v *visitor, asked url.Values) string {
			code := o.agree(v.T, asked, nil, nil)
			o.set(func() {
				o.codes[code].answer["id_token"] = token(v.T, "one", stranger, o.claims(map[string]any{"aud": "pages", "nonce": asked.Get("nonce")}))
			})
			return back(asked, code)
		}, 401, "signature"},
		"an opaque access token": {func(v *visitor, asked url.Values) string {
			code := o.agree(v.T, asked, nil, nil)
			o.set(func() { o.codes[code].answer["access_token"] = "opaque" })
			return back(asked, code)
		}, 401, "no signed token"},
		"no ID token": {func(v *visitor, asked url.Values) string {
			code := o.agree(v.T, asked, nil, nil)
			o.set(func() { delete(o.codes[code].answer, "id_token") })
			return back(asked, code)
		}, 401, "no ID token"},
		"an error": {func(_ *visitor, asked url.Values) string {
			return "/ui/issuer/back?" + url.Values{"state": {asked.Get("state")}, "error": {"access_denied"}, "error_description": {"<script>alert(1)</script>\n\x1b[31m" + strings.Repeat("x", 400)}}.Encode()
		}, 403, "The issuer refused the sign-in: &lt;script&gt;alert(1)&lt;/script&gt; [31mxxx"},
		"a forged error": {func(*visitor, url.Values) string {
			return "/ui/issuer/back?error=x&error_description=call+this+number"
		}, 401, "not begun in this browser"},
		"an answer of another issuer": {func(v *visitor, asked url.Values) string {
			return back(asked, o.agree(v.T, asked, nil, nil)) + "&iss=https://evil.example"
		}, 401, "of another issuer"},
		"the issuer is down": {func(v *visitor, asked url.Values) string {
			o.set(func() { o.down = true })
			v.Cleanup(func() { o.set(func() { o.down = false }) })
			return back(asked, "a code")
		}, 503, "does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			_, at := serveHTTP(t, withClient(o))
			v := visit(t, at)
			asked := v.begin(o, "https://evil.example/")
			path := tt.answer(v, asked)
			res, body := v.get(path)
			if res.StatusCode != tt.status || !strings.Contains(body, tt.want) || !strings.Contains(body, "<h1>Sign in</h1>") {
				t.Errorf("%d\n%s\nwant %d with %q", res.StatusCode, body, tt.status, tt.want)
			}
			if strings.Contains(body, "<script>alert") || strings.Contains(body, "call this number") || strings.Contains(body, "evil.example/\"") {
				t.Errorf("the page is\n%s", body)
			}
			if res, _ := v.get("/ui/"); res.StatusCode != 303 {
				t.Errorf("signed in: %d", res.StatusCode)
			}
			o.set(func() { o.down = false })
			// The sign-in is over: its answer is not taken a second time.
			if res, _ := v.get(path); res.StatusCode != 401 {
				t.Errorf("once more: %d", res.StatusCode)
			}
		})
	}
}

// TestSignInAtIssuerLeadsHome: after the sign-in, people are at a page of this server.
func TestSignInAtIssuerLeadsHome(t *testing.T) {
	o := startIssuer(t)
	_, at := serveHTTP(t, withClient(o))
	for next, want := range map[string]string{"https://evil.example/": "/ui/", "//evil.example/ui/": "/ui/", "/mcp": "/ui/", "/ui/settings": "/ui/settings"} {
		v := visit(t, at)
		asked := v.begin(o, next)
		v.get(back(asked, o.agree(t, asked, nil, nil)))
		if res, body := v.get("/ui/arrived"); res.Header.Get("Location") != want {
			t.Errorf("from %s to %s\n%s", next, res.Header.Get("Location"), body)
		}
	}
	_, at = serveHTTP(t, withIssuer(o)) // no client
	v := visit(t, at)
	v.Transport.(*http.Transport).DisableKeepAlives = true
	res, err := v.Get(at + "/ui/issuer")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != 404 {
		t.Errorf("without a client: %d", res.StatusCode)
	}
}

// TestSignInAtIssuerAfterFailure: what the issuer did not answer is asked again at a later
// sign-in.
func TestSignInAtIssuerAfterFailure(t *testing.T) {
	o := startIssuer(t)
	clock := startClock()
	_, at := serveHTTP(t, func(opts *Options) {
		withClient(o)(opts)
		opts.now = clock.now
	})
	refused := func(what, path string) {
		t.Helper()
		if res, body := visit(t, at).get(path); res.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "The issuer does not answer. Try again later.") {
			t.Errorf("%s: %d\n%s", what, res.StatusCode, body)
		}
	}
	signIn := func(what string, want int) {
		t.Helper()
		v := visit(t, at)
		asked := v.begin(o, "/ui/")
		if res, body := v.get(back(asked, o.agree(t, asked, nil, nil))); res.StatusCode != want {
			t.Errorf("%s: %d, want %d\n%s", what, res.StatusCode, want, body)
		}
	}
	o.set(func() { o.down = true })
	refused("down from the start", "/ui/issuer")
	o.set(func() {
		o.down, o.says = false, map[string]any{"authorization_endpoint": "http://issuer.example/authorize"}
	})
	refused("an endpoint without encryption", "/ui/issuer")
	o.set(func() { o.says = nil })
	refused("the same, a moment later", "/ui/issuer")
	clock.move(10 * time.Second)
	o.set(func() { o.mute = true })
	signIn("without keys", http.StatusServiceUnavailable)
	o.set(func() { o.mute = false })
	signIn("with keys", http.StatusOK)
}

// TestSignInAtIssuerThatMoves: sign-ins ask the issuer for its endpoints each hour. What it
// said before remains if it does not answer.
func TestSignInAtIssuerThatMoves(t *testing.T) {
	o := startIssuer(t)
	clock := startClock()
	_, at := serveHTTP(t, func(opts *Options) {
		withClient(o)(opts)
		opts.now = clock.now
	})
	visit(t, at).begin(o, "/ui/")
	clock.move(time.Hour)
	o.set(func() { o.says = map[string]any{"authorization_endpoint": o.url + "/authorize?tenant=2"} })
	if tenant := visit(t, at).begin(o, "/ui/").Get("tenant"); tenant != "2" {
		t.Errorf("an hour after the endpoint moved: tenant %s", tenant)
	}
	clock.move(time.Hour)
	o.set(func() { o.down = true })
	if tenant := visit(t, at).begin(o, "/ui/").Get("tenant"); tenant != "2" {
		t.Errorf("the issuer is away: tenant %s", tenant)
	}
}
