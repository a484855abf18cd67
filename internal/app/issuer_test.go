package app

import (
	"context"
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/usage"
)

// An oidcIssuer is an OpenID Connect issuer as far as a resource server meets
// one: discovery, keys, and tokens.
type oidcIssuer struct {
	url string

	mu    sync.Mutex
	keys  map[string]*rsa.PrivateKey // by kid: those it shows
	asked int                        // for keys
	down  bool
	mute  bool             // it does not show its keys
	says  map[string]any   // instead of the same parts of its document
	codes map[string]grant // of sign-ins
}

// A grant is what a code of a sign-in is good for, once.
type grant struct {
	challenge string
	answer    map[string]any
}

func startIssuer(t *testing.T) *oidcIssuer {
	t.Helper()
	o := &oidcIssuer{keys: map[string]*rsa.PrivateKey{}}
	srv := httptest.NewServer(o)
	t.Cleanup(srv.Close)
	o.url = srv.URL
	o.addKey(t, "one")
	return o
}

func (o *oidcIssuer) addKey(t *testing.T, kid string) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.keys[kid] = key
	return key
}

func (o *oidcIssuer) set(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change()
}

func (o *oidcIssuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.down {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	var v any
	switch path := r.URL.Path; {
	case path == "/.well-known/openid-configuration":
		// It boasts of an algorithm that nobody must accept.
		document := map[string]any{"issuer": o.url, "jwks_uri": o.url + "/keys", "authorization_endpoint": o.url + "/authorize?tenant=1", "token_endpoint": o.url + "/token", "id_token_signing_alg_values_supported": []string{"RS256", "HS256", "none"}}
		maps.Copy(document, o.says)
		v = document
	case path == "/token":
		v = o.exchange(r)
	case path == "/keys" && !o.mute:
		o.asked++
		var list []map[string]string
		for kid, k := range o.keys {
			list = append(list, map[string]string{"kty": "RSA", "use": "sig", "kid": kid,
				"n": b64(k.N.Bytes()), "e": b64(big.NewInt(int64(k.E)).Bytes())})
		}
		v = map[string]any{"keys": list}
	default:
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if e, ok := v.(map[string]any); ok && e["error"] != nil {
		w.WriteHeader(http.StatusBadRequest)
	}
	_ = json.NewEncoder(w).Encode(v)
}

// exchange answers a client that has a code. The caller holds mu.
func (o *oidcIssuer) exchange(r *http.Request) any {
	id, secret, _ := r.BasicAuth()
	g, ok := o.codes[r.FormValue("code")]
	delete(o.codes, r.FormValue("code"))
	sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	switch {
	case id != "pages" || secret != "of+the+client": // RFC 6749 encodes it
		return map[string]any{"error": "invalid_client"}
	case !ok || b64(sum[:]) != g.challenge || r.FormValue("redirect_uri") != pages+"/ui/issuer/back" || r.FormValue("grant_type") != "authorization_code":
		return map[string]any{"error": "invalid_grant", "error_description": "the code <b>is not good</b>"}
	}
	return g.answer
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// claims are those of a good token, changed.
func (o *oidcIssuer) claims(change map[string]any) map[string]any {
	c := map[string]any{
		"iss": o.url, "aud": []string{"box"}, "sub": "ada", "scope": "openid box.run",
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	}
	maps.Copy(c, change)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	return c
}

// token signs claims by RS256.
func token(t *testing.T, kid string, key *rsa.PrivateKey, claims map[string]any) string {
	t.Helper()
	text := unsigned(t, map[string]any{"alg": "RS256", "typ": "at+jwt", "kid": kid}, claims)
	sum := sha256.Sum256([]byte(text))
	sig, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + b64(sig)
}

func unsigned(t *testing.T, header, claims map[string]any) string {
	t.Helper()
	h, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	c, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	return b64(h) + "." + b64(c)
}

// serveHTTP serves a system with the fake driver, and returns its address.
func serveHTTP(t *testing.T, change func(*Options)) (*System, string) {
	t.Helper()
	o := testOptions(t, t.TempDir())
	o.Config.Server.Listen = "127.0.0.1:0"
	change(&o)
	if err := o.Config.Validate(); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, o)
	ctx, done := serveContext(t)
	ln, err := s.Listen(ctx)
	if err != nil {
		t.Fatal(err)
	}
	go func() { done <- s.ServeHTTP(ctx, ln, func() error { return nil }) }()
	return s, "http://" + ln.MCP.Addr().(*net.TCPAddr).String()
}

// A movedClock is a clock that a test sets forward while servers read it.
type movedClock struct {
	began time.Time
	moved atomic.Int64 // by so many nanoseconds
}

func startClock() *movedClock { return &movedClock{began: time.Now()} }

func (c *movedClock) now() time.Time { return c.began.Add(time.Duration(c.moved.Load())) }

func (c *movedClock) move(by time.Duration) { c.moved.Add(int64(by)) }

const listTools = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`

// ask lists the tools with a token and returns status, challenge and body.
func ask(t *testing.T, url, token string) (int, string, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/mcp", strings.NewReader(listTools))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list", "Authorization": "Bearer " + token,
	} {
		req.Header.Set(k, v)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, res.Header.Get("WWW-Authenticate"), string(body)
}

func withIssuer(o *oidcIssuer) func(*Options) {
	return func(opts *Options) {
		c := &opts.Config.Server.OIDC
		c.Issuer, c.Audience, c.Scopes.Run, c.Scopes.Files = o.url, "box", "box.run", "box.files"
	}
}

func TestIssuer(t *testing.T) {
	o := startIssuer(t)
	s, url := serveHTTP(t, withIssuer(o))
	key := o.keys["one"]
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	// A server that takes any algorithm can be made to check a MAC with the
	// key that everybody knows.
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	confused := unsigned(t, map[string]any{"alg": "HS256", "kid": "one"}, o.claims(nil))
	mac := hmac.New(sha256.New, public)
	mac.Write([]byte(confused))
	good := token(t, "one", key, o.claims(nil))
	head, rest, _ := strings.Cut(good, ".")
	_, sig, _ := strings.Cut(rest, ".")

	for name, tt := range map[string]struct {
		token  string
		status int
		want   string // in the body, or the challenge
	}{
		"good":             {good, 200, `"run_code"`},
		"only its scope":   {token(t, "one", key, o.claims(map[string]any{"scope": "box.files"})), 200, `"read_file"`},
		"scopes as a list": {token(t, "one", key, o.claims(map[string]any{"scope": nil, "scp": []string{"box.run"}})), 200, `"run_code"`},
		"one audience":     {token(t, "one", key, o.claims(map[string]any{"aud": "box"})), 200, `"run_code"`},
		"wrong audience":   {token(t, "one", key, o.claims(map[string]any{"aud": "other"})), 401, "audience"},
		"no audience":      {token(t, "one", key, o.claims(map[string]any{"aud": nil})), 401, "audience"},
		"expired":          {token(t, "one", key, o.claims(map[string]any{"exp": time.Now().Add(-time.Second).Unix()})), 401, "expired"},
		"never expires":    {token(t, "one", key, o.claims(map[string]any{"exp": nil})), 401, "expired"},
		"not yet":          {token(t, "one", key, o.claims(map[string]any{"nbf": time.Now().Add(time.Hour).Unix()})), 401, "nbf"},
		"wrong issuer":     {token(t, "one", key, o.claims(map[string]any{"iss": "https://evil.example"})), 401, "provider"},
		"nobody":           {token(t, "one", key, o.claims(map[string]any{"sub": ""})), 401, "sub"},
		"a strange sub":    {token(t, "one", key, o.claims(map[string]any{"sub": "a\x00b"})), 401, "sub"},
		"missing scope":    {token(t, "one", key, o.claims(map[string]any{"scope": "openid admin2"})), 403, `error="insufficient_scope"`},
		"odd scope":        {token(t, "one", key, o.claims(map[string]any{"scope": 7})), 401, "scope"},
		"another's key":    {token(t, "one", other, o.claims(nil)), 401, "signature"},
		"alg none":         {unsigned(t, map[string]any{"alg": "none"}, o.claims(nil)) + ".", 401, "malformed"},
		"alg HS256":        {confused + "." + b64(mac.Sum(nil)), 401, "malformed"},
		"changed":          {head + "." + b64([]byte(`{"sub":"eve"}`)) + "." + sig, 401, "signature"},
		"not one":          {"a.b.c", 401, "malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			status, challenge, body := ask(t, url, tt.token)
			if status != tt.status || !strings.Contains(body+challenge, tt.want) {
				t.Errorf("status %d, challenge %q, body %.300s; want %d with %q", status, challenge, body, tt.status, tt.want)
			}
			if strings.Contains(body, tt.token) {
				t.Error("the answer repeats the token")
			}
			hasChallenge := strings.Contains(challenge, `resource_metadata="`+url+`/.well-known/oauth-protected-resource/mcp"`) &&
				strings.Contains(challenge, `scope="box.run box.files"`)
			if hasChallenge != (status == 401 || status == 403) {
				t.Errorf("status %d with challenge %q", status, challenge)
			}
			if tt.want == `"read_file"` && strings.Contains(body, `"run_code"`) {
				t.Error("a token without the scope run is offered run_code")
			}
		})
	}

	// Who a token names is somebody of its own, per issuer.
	id, err := s.auth.Verify(t.Context(), good)
	if want := "oidc:" + o.url + "#ada"; err != nil || string(id.Principal) != want {
		t.Errorf("principal %q, %v; want %q", id.Principal, err, want)
	}

	res, err := http.Get(url + "/.well-known/oauth-protected-resource/mcp")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var metadata struct {
		Resource string
		Servers  []string `json:"authorization_servers"`
		Scopes   []string `json:"scopes_supported"`
	}
	if err := json.NewDecoder(res.Body).Decode(&metadata); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(metadata), fmt.Sprintf("{%s/mcp [%s] [box.run box.files]}", url, o.url); got != want {
		t.Errorf("metadata %s, want %s", got, want)
	}
}

func TestIssuerChangesItsKeys(t *testing.T) {
	o := startIssuer(t)
	_, url := serveHTTP(t, withIssuer(o))
	old := token(t, "one", o.keys["one"], o.claims(nil))
	next, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	later := token(t, "two", next, o.claims(nil))
	expect := func(what, token string, want int) {
		t.Helper()
		if status, _, body := ask(t, url, token); status != want {
			t.Errorf("%s: %d, want %d: %s", what, status, want, body)
		}
	}
	expect("the first key", old, 200)
	expect("a key that is not shown yet", later, 401)
	o.set(func() { o.keys["two"] = next })
	// The question for keys that the token before made us ask may not be over
	// yet; a token that comes meanwhile shares its answer. One that comes too soon
	// after others makes us ask nothing.
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if status, _, _ := ask(t, url, later); status == 200 {
			break
		}
	}
	expect("the next key, now shown", later, 200)
	expect("the first key, still shown", old, 200)

	// Unknown keys do not make us ask and ask.
	var before int
	o.set(func() { before = o.asked })
	begun := time.Now()
	for range 30 {
		expect("an unknown key", token(t, "three", next, o.claims(nil)), 401)
	}
	o.set(func() {
		// A few at once, and one every ten seconds.
		if most := 5 + int(time.Since(begun)/(10*time.Second)); o.asked-before > most {
			t.Errorf("30 tokens with an unknown key made it ask %d times", o.asked-before)
		}
	})
}

func TestIssuerIsDown(t *testing.T) {
	o := startIssuer(t)
	o.set(func() { o.down = true })
	s, url := serveHTTP(t, withIssuer(o))
	own, err := s.FirstToken(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	good := token(t, "one", o.keys["one"], o.claims(nil))
	status, challenge, body := ask(t, url, good)
	if status != 503 || challenge != "" || !strings.Contains(body, "its issuer "+o.url+" does not answer") || !strings.Contains(body, `"hint"`) {
		t.Errorf("with the issuer down: %d %q %s", status, challenge, body)
	}
	if status, _, body := ask(t, url, own); status != 200 {
		t.Errorf("our own token with the issuer down: %d %s", status, body)
	}

	o.set(func() { o.down = false })
	if status, _, body := ask(t, url, good); status != 200 {
		t.Fatalf("with the issuer up again: %d %s", status, body)
	}
	o.set(func() { o.down = true })
	if status, _, body := ask(t, url, good); status != 200 {
		t.Errorf("a known key with the issuer down: %d %s", status, body)
	}
	next, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	if status, _, body := ask(t, url, token(t, "two", next, o.claims(nil))); status != 503 {
		t.Errorf("an unknown key with the issuer down: %d %s", status, body)
	}
}

func TestIssuerTakesAKeyBack(t *testing.T) {
	o := startIssuer(t)
	now := time.Now()
	a, err := auth.New(auth.Options{
		Issuer: &auth.Issuer{URL: o.url, Audience: "box", Scopes: map[auth.Scope]string{auth.ScopeRun: "box.run"}},
		Now:    func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	text := token(t, "one", o.keys["one"], o.claims(map[string]any{"exp": now.Add(24 * time.Hour).Unix()}))
	expect := func(what string, want error) {
		t.Helper()
		if _, err := a.Verify(t.Context(), text); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	expect("the key is there", nil)
	now = now.Add(2 * time.Hour)
	o.set(func() { o.down = true })
	expect("an hour later, nobody to ask", nil)
	now = now.Add(2 * time.Minute)
	o.set(func() { o.down = false })
	o.addKey(t, "two")
	o.set(func() { delete(o.keys, "one") })
	expect("the key was taken back", sandbox.Unauthenticated)
}

// serveContext returns a context that ends when the test does, and a channel
// for what the server that runs until then returns.
func serveContext(t testing.TB) (context.Context, chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return ctx, done
}

// TestIssuerGroups: the claims of a token say in which groups its subject is, whose
// limits hold at once.
func TestIssuerGroups(t *testing.T) {
	o := startIssuer(t)
	s, url := serveHTTP(t, func(opts *Options) {
		withIssuer(o)(opts)
		opts.Config.Server.OIDC.Groups = config.OIDCGroups{Claim: "teams", Map: map[string]string{"Engineering": "eng", "Sales": "sales"}}
	})
	if err := s.store.SetLimits(t.Context(), []AccountLimit{{Group: "eng", Limit: usage.LimitSandboxes, Value: 0}}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		teams any
		want  []string
	}{
		{[]string{"Engineering", "Other"}, []string{"eng"}},
		{"Sales", []string{"sales"}},
		{nil, nil},
	} {
		text := token(t, "one", o.keys["one"], o.claims(map[string]any{"teams": tt.teams}))
		if status, _, body := ask(t, url, text); status != 200 {
			t.Fatalf("%v: %d %s", tt.teams, status, body)
		}
		groups, err := s.store.Groups(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, g := range groups {
			got = append(got, g.Name)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%v: -want +got\n%s", tt.teams, diff)
		}
		answer := caller{t, url, text, http.DefaultClient}.tool("create_sandbox", nil)
		if limited := strings.Contains(answer, "exhausted"); limited != (tt.want != nil && tt.want[0] == "eng") {
			t.Errorf("%v: %s", tt.teams, answer)
		}
	}
	if status, _, body := ask(t, url, token(t, "one", o.keys["one"], o.claims(map[string]any{"teams": 7}))); status != 401 || !strings.Contains(body, "teams") {
		t.Errorf("an odd claim: %d %s", status, body)
	}
}
