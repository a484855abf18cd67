package httpserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/usage"
)

func TestMain(m *testing.M) {
	code := m.Run()
	var left []string
	for range 50 {
		if left = running(); len(left) == 0 {
			os.Exit(code)
		}
		time.Sleep(100 * time.Millisecond)
	}
	fmt.Fprintf(os.Stderr, "goroutines left behind:\n%s\n", strings.Join(left, "\n\n"))
	os.Exit(1)
}

// running returns the stacks of the package's goroutines but that of TestMain.
func running() []string {
	buf := make([]byte, 1<<20)
	stacks := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
	return slices.DeleteFunc(stacks, func(stack string) bool {
		return strings.Contains(stack, "httpserver.TestMain") || !strings.Contains(stack, "glovebox/internal/httpserver")
	})
}

// tokens is a Verifier of the tokens "good" and "broken".
type tokens struct{}

func (tokens) Verify(_ context.Context, token string) (auth.Identity, error) {
	switch {
	case strings.HasPrefix(token, "good"):
		return auth.Identity{Principal: sandbox.Principal(token), Scopes: auth.Scopes()}, nil
	case token == "filesonly":
		return auth.Identity{Principal: "good", Scopes: []auth.Scope{auth.ScopeFiles}}, nil
	case token == "broken":
		return auth.Identity{}, errors.New("secret detail of the store")
	}
	return auth.Identity{}, sandbox.Errorf(sandbox.Unauthenticated, "token: not valid")
}

// Gone has nobody revoked.
func (tokens) Gone(context.Context, auth.Identity) (bool, error) { return false, nil }

// revocable is a Verifier that also revokes.
type revocable struct {
	tokens
	gone atomic.Pointer[sandbox.Principal]
}

func (r *revocable) Gone(_ context.Context, id auth.Identity) (bool, error) {
	gone := r.gone.Load()
	return gone != nil && *gone == id.Principal, nil
}

// revoke revokes the only principal that is revoked.
func (r *revocable) revoke(p sandbox.Principal) { r.gone.Store(&p) }

// echo answers with the principal and the body.
func echo(w http.ResponseWriter, r *http.Request) {
	id, _ := auth.FromContext(r.Context())
	b, err := io.ReadAll(r.Body)
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		} else {
			w.WriteHeader(http.StatusBadRequest)
		}
		return
	}
	fmt.Fprintf(w, "%s:%s", id.Principal, b)
}

func newServer(t *testing.T, change func(*Options)) *Server {
	t.Helper()
	o := Options{
		Listen: "127.0.0.1:8080",
		MCP:    http.HandlerFunc(echo),
		Auth:   tokens{},
		Log:    slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&o)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// request sends one request to the handler. Headers are name, value pairs.
func request(s *Server, method, target, body string, headers ...string) *http.Response {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Host = "127.0.0.1:8080"
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		} else {
			r.Header.Add(headers[i], headers[i+1])
		}
	}
	w := httptest.NewRecorder()
	answerTo(s, w, r)
	return w.Result()
}

// answerTo serves a request as net/http does: a handler may abort its answer.
func answerTo(s *Server, w http.ResponseWriter, r *http.Request) {
	defer func() {
		if v := recover(); v != nil && v != http.ErrAbortHandler {
			panic(v)
		}
	}()
	s.Handler().ServeHTTP(w, r)
}

const good = "Bearer good"

func TestAuthentication(t *testing.T) {
	s := newServer(t, nil)
	for _, tt := range []struct {
		name    string
		headers []string
		status  int
		kind    string
	}{
		{"none", nil, 401, "unauthenticated"},
		{"wrong token", []string{"Authorization", "Bearer bad"}, 401, "unauthenticated"},
		{"no token", []string{"Authorization", "Bearer "}, 401, "unauthenticated"},
		{"other scheme", []string{"Authorization", "Basic good"}, 401, "unauthenticated"},
		{"two headers", []string{"Authorization", good, "Authorization", good}, 401, "unauthenticated"},
		{"store fails", []string{"Authorization", "Bearer broken"}, 500, "internal"},
		{"good", []string{"Authorization", good}, 200, ""},
		{"lower case", []string{"Authorization", "bearer good"}, 200, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			res := request(s, "POST", "/mcp", "body", tt.headers...)
			body, _ := io.ReadAll(res.Body)
			if res.StatusCode != tt.status {
				t.Fatalf("status %d, want %d: %s", res.StatusCode, tt.status, body)
			}
			if tt.status == 200 {
				if string(body) != "good:body" {
					t.Errorf("the handler answered %q", body)
				}
				return
			}
			var problem struct {
				Error struct{ Kind, Message string }
			}
			if err := json.Unmarshal(body, &problem); err != nil || problem.Error.Kind != tt.kind {
				t.Errorf("body %s, want JSON of kind %s", body, tt.kind)
			}
			if strings.Contains(string(body), "secret detail") {
				t.Errorf("the body tells what went wrong inside: %s", body)
			}
			challenge := res.Header.Get("WWW-Authenticate")
			if want := `resource_metadata="http://127.0.0.1:8080/.well-known/oauth-protected-resource/mcp"`; (tt.status == 401) != strings.Contains(challenge, want) {
				t.Errorf("WWW-Authenticate %q, status %d", challenge, tt.status)
			}
		})
	}
	for _, path := range []string{"/mcp", "/mcp/native", "/sse"} {
		if res := request(s, "GET", path, ""); res.StatusCode != 401 {
			t.Errorf("GET %s without a token: %d", path, res.StatusCode)
		}
	}
	if res := request(s, "GET", "/healthz", "", "Host", "10.0.0.7:8080"); res.StatusCode != 200 {
		t.Errorf("GET /healthz as a kubelet does: %d", res.StatusCode)
	}
	if res := request(s, "GET", "/elsewhere", ""); res.StatusCode != 404 {
		t.Errorf("GET /elsewhere: %d", res.StatusCode)
	}
}

func TestMetadata(t *testing.T) {
	s := newServer(t, func(o *Options) {
		o.PublicURL = "https://box.example.com/"
		o.Issuers = []string{"https://issuer.example.com"}
	})
	res := request(s, "GET", metadataPath+"/mcp", "", "Host", "box.example.com")
	var got map[string]any
	if err := json.NewDecoder(res.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"resource":                 "https://box.example.com/mcp",
		"resource_name":            "Glovebox",
		"authorization_servers":    []any{"https://issuer.example.com"},
		"bearer_methods_supported": []any{"header"},
		"scopes_supported":         []any{"run", "files"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
}

// TestSignIn asks as MCP clients without a token do. The paths at which they look
// for an authorization server say how to get a token, in the form of OAuth where
// they parse it, and none looks like such a server.
func TestSignIn(t *testing.T) {
	const issuer = "https://issuer.example.com"
	for name, tt := range map[string]struct {
		issuers []string
		want    string
	}{
		"without an issuer": {nil, "glovebox token create"},
		"with an issuer":    {[]string{issuer}, issuer},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, func(o *Options) { o.Issuers = tt.issuers })
			for path, oauth := range map[string]bool{
				"/register": true, "/authorize?redirect_uri=https://evil.example": true, "/token": true,
				"/.well-known/oauth-authorization-server": false, "/.well-known/oauth-authorization-server/mcp": false,
				"/.well-known/openid-configuration": false, "/.well-known/openid-configuration/mcp": false,
			} {
				for _, method := range []string{"GET", "POST"} {
					res := request(s, method, path, "{}")
					var got struct {
						Error       any
						Description string `json:"error_description"`
					}
					body := bodyOf(t, res)
					if err := json.Unmarshal([]byte(body), &got); err != nil || res.StatusCode != 404 || res.Header.Get("Location") != "" || !strings.Contains(body, tt.want) {
						t.Errorf("%s %s: %d %s; want 404 with %q", method, path, res.StatusCode, body, tt.want)
					}
					if _, ok := got.Error.(string); ok != oauth || oauth && (got.Description == "" || strings.ContainsAny(got.Description, `"\\`)) {
						t.Errorf("%s %s: %s; an error of OAuth: %t, want %t", method, path, body, ok, oauth)
					}
				}
			}
			if res := request(s, "POST", "/register", "{}", "Origin", "https://evil.example"); res.StatusCode != 403 {
				t.Errorf("a page of another origin: %d, want 403", res.StatusCode)
			}
			var metadata map[string]any
			if err := json.Unmarshal([]byte(bodyOf(t, request(s, "GET", metadataPath+"/mcp", ""))), &metadata); err != nil {
				t.Fatal(err)
			}
			if _, listed := metadata["authorization_servers"]; listed != (tt.issuers != nil) {
				t.Errorf("the metadata is %v", metadata)
			}
			res := request(s, "POST", "/mcp", "{}", "Authorization", "Bearer bad")
			if got := res.Header.Get("WWW-Authenticate"); !strings.Contains(got, `error="invalid_token", error_description="the token is not valid; `) || !strings.Contains(got, tt.want) {
				t.Errorf("a wrong token: WWW-Authenticate %s", got)
			}
			res = request(s, "POST", "/mcp", "{}")
			if got := res.Header.Get("WWW-Authenticate"); strings.Contains(got, "error") {
				t.Errorf("no token: WWW-Authenticate %s; RFC 6750 allows no error", got)
			}
			if body := bodyOf(t, res); !strings.Contains(body, "glovebox token create") {
				t.Errorf("no token: %s", body)
			}
		})
	}
	e2b := newServer(t, func(o *Options) { o.MCP, o.E2B = nil, plainE2B{} })
	if body := bodyOf(t, request(e2b, "GET", "/register", "", "X-Api-Key", "good")); !strings.HasPrefix(body, "/register ") {
		t.Errorf("/register of a server of E2B's protocol alone: %s", body)
	}
}

func TestGuard(t *testing.T) {
	s := newServer(t, func(o *Options) {
		o.Listen = "192.0.2.7:8080"
		o.AllowHosts = []string{"Box.example.com", "only.example.com:444"}
		o.AllowOrigins = []string{"https://App.example.com", "http://app.example.com:81/"}
	})
	for _, tt := range []struct {
		host, origin string
		status       int
	}{
		{"localhost", "", 200},
		{"LOCALHOST:8080", "", 200},
		{"127.0.0.1:8080", "", 200},
		{"127.9.9.9", "", 200},
		{"[::1]:8080", "", 200},
		{"[::1]", "", 200},
		{"192.0.2.7:8080", "", 200},
		{"box.example.com", "", 200},
		{"box.example.com:9999", "", 200},
		{"only.example.com:444", "", 200},
		{"only.example.com", "", 403},
		{"evil.example.com", "", 403},
		{"box.example.com.evil.example.com", "", 403},
		{"localhost.evil.example.com", "", 403},
		{"127.0.0.1.evil.example.com", "", 403},
		{"192.0.2.8:8080", "", 403},
		{"", "", 403},
		{"localhost", "http://localhost:3000", 200},
		{"localhost", "https://127.0.0.1", 200},
		{"localhost", "http://[::1]:5173", 200},
		{"localhost", "https://app.example.com", 200},
		{"localhost", "https://APP.example.com", 200},
		{"localhost", "http://app.example.com:81", 200},
		{"box.example.com", "https://box.example.com", 200}, // its own page
		{"localhost", "http://app.example.com", 403},
		{"localhost", "https://app.example.com:444", 403},
		{"localhost", "https://evil.example.com", 403},
		{"localhost", "https://localhost.evil.example.com", 403},
		{"localhost", "http://localhost@evil.example.com", 403},
		{"localhost", "http://evil.example.com#localhost", 403},
		{"localhost", "null", 403},
		{"localhost", "file://", 403},
		{"localhost", "chrome-extension://localhost", 403},
	} {
		headers := []string{"Host", tt.host, "Authorization", good}
		if tt.origin != "" {
			headers = append(headers, "Origin", tt.origin)
		}
		res := request(s, "POST", "/mcp", "", headers...)
		if res.StatusCode != tt.status {
			t.Errorf("host %q, origin %q: status %d, want %d", tt.host, tt.origin, res.StatusCode, tt.status)
		}
		if cors := res.Header.Get("Access-Control-Allow-Origin"); tt.origin != "" && (cors == tt.origin) != (tt.status == 200) {
			t.Errorf("host %q, origin %q: Access-Control-Allow-Origin %q", tt.host, tt.origin, cors)
		}
	}
	if res := request(s, "POST", "/mcp", "", "Authorization", good, "Origin", "http://localhost", "Origin", "https://evil.example.com"); res.StatusCode != 403 {
		t.Errorf("two origins: status %d, want 403", res.StatusCode)
	}
	res := request(s, "OPTIONS", "/mcp", "", "Origin", "http://localhost:6274", "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,mcp-session-id")
	if res.StatusCode != 204 || res.Header.Get("Access-Control-Allow-Headers") != "authorization,mcp-session-id" {
		t.Errorf("a browser's question: %d %v", res.StatusCode, res.Header)
	}
	wild := newServer(t, func(o *Options) { o.Listen = "0.0.0.0:8080" })
	if res := request(wild, "POST", "/mcp", "", "Host", "0.0.0.0:8080", "Authorization", good); res.StatusCode != 403 {
		t.Errorf("the unspecified address as a host: %d, want 403", res.StatusCode)
	}
}

func TestNewInvalid(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"host with a scheme":      func(o *Options) { o.AllowHosts = []string{"https://a.example.com"} },
		"empty host":              func(o *Options) { o.AllowHosts = []string{""} },
		"origin without a scheme": func(o *Options) { o.AllowOrigins = []string{"a.example.com"} },
		"origin with a path":      func(o *Options) { o.AllowOrigins = []string{"https://a.example.com/x"} },
		"anonymous for everybody": func(o *Options) { o.Listen, o.Anonymous = "0.0.0.0:80", &auth.Identity{} },
		"certificate without key": func(o *Options) { o.CertFile = "x" },
		"public URL without host": func(o *Options) { o.PublicURL = "x" },
	} {
		o := Options{Listen: "127.0.0.1:0", MCP: http.NotFoundHandler(), Auth: tokens{}, Log: slog.New(slog.DiscardHandler)}
		change(&o)
		if _, err := New(o); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("%s: error %v, want invalid", name, err)
		}
	}
}

func TestAnonymous(t *testing.T) {
	s := newServer(t, func(o *Options) { o.Anonymous = &auth.Identity{Principal: "nobody", Scopes: auth.Scopes()} })
	body, _ := io.ReadAll(request(s, "POST", "/mcp", "x").Body)
	if string(body) != "nobody:x" {
		t.Errorf("without a token: %q", body)
	}
	if res := request(s, "POST", "/mcp", "x", "Authorization", "Bearer bad"); res.StatusCode != 401 {
		t.Errorf("with a wrong token: %d, want 401", res.StatusCode)
	}
}

func TestBodyLimit(t *testing.T) {
	s := newServer(t, func(o *Options) { o.MaxBodyBytes = 10 })
	if res := request(s, "POST", "/mcp", "0123456789", "Authorization", good); res.StatusCode != 200 {
		t.Errorf("a body of the limit's size: %d", res.StatusCode)
	}
	if res := request(s, "POST", "/mcp", "0123456789a", "Authorization", good); res.StatusCode != 413 {
		t.Errorf("a body one larger: %d, want 413", res.StatusCode)
	}
	r := httptest.NewRequest("POST", "/mcp", struct{ io.Reader }{strings.NewReader("0123456789a")})
	r.Host = "localhost"
	r.Header.Set("Authorization", good)
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	if r.ContentLength != -1 || w.Code != 413 {
		t.Errorf("a body of unknown length: %d, want 413", w.Code)
	}
}

// TestRefusedBodyIsAnswered has clients that send all before they read, as
// many do, and still must see why they are refused.
func TestRefusedBodyIsAnswered(t *testing.T) {
	s := newServer(t, func(o *Options) { o.MaxBodyBytes = 1 << 10 })
	server := httptest.NewServer(s.Handler())
	defer server.Close()
	const size = 8 << 20
	for name, head := range map[string]string{
		"length":  fmt.Sprintf("Content-Length: %d\r\n\r\n", size),
		"chunked": fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n", size),
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: %s\r\n%s", good, head); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Write(make([]byte, size)); err != nil {
				t.Fatalf("while it sends: %v", err)
			}
			if name == "chunked" {
				if _, err := io.WriteString(conn, "\r\n0\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
			}
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if res.StatusCode != http.StatusRequestEntityTooLarge {
				t.Errorf("status %d, want 413", res.StatusCode)
			}
		})
	}
}

// TestAllBodies has a principal wait for its own bodies, in vain.
func TestAllBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		shares := NewShares(10)
		s := newServer(t, func(o *Options) {
			o.Shares = shares
			o.MCP = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release })
		})
		done := make(chan int)
		go func() { done <- request(s, "POST", "/mcp", "0123456", "Authorization", good).StatusCode }()
		synctest.Wait()
		res := request(s, "POST", "/mcp", "0123", "Authorization", good)
		if res.StatusCode != 429 || res.Header.Get("Retry-After") == "" {
			t.Errorf("a body above the share: %d, want 429 with Retry-After", res.StatusCode)
		}
		res = request(s, "POST", "/mcp", "0123", "Authorization", good+"other")
		if res.StatusCode != 503 || res.Header.Get("Retry-After") == "" {
			t.Errorf("a body of another with the server full: %d, want 503 with Retry-After", res.StatusCode)
		}
		close(release)
		if status := <-done; status != 200 {
			t.Errorf("the first: %d", status)
		}
		nothingHeld(t, shares)
	})
}

func TestRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, func(o *Options) { o.RequestsPerSecond = 2 })
		ask := func(token string) *http.Response {
			return request(s, "POST", "/mcp", "", "Authorization", "Bearer "+token)
		}
		for i := range 4 {
			if res := ask("good1"); res.StatusCode != 200 {
				t.Fatalf("request %d: %d", i, res.StatusCode)
			}
		}
		res := ask("good1")
		if res.StatusCode != 429 || res.Header.Get("Retry-After") != "1" {
			t.Errorf("the fifth at once: %d, Retry-After %q; want 429 and 1", res.StatusCode, res.Header.Get("Retry-After"))
		}
		var answer struct{ Error sandbox.Problem }
		if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
			t.Fatal(err)
		}
		want := sandbox.Problem{Kind: sandbox.Exhausted, Message: "too many requests", RetryAfter: 1}
		if diff := cmp.Diff(want, answer.Error); diff != "" {
			t.Errorf("the body (-want +got):\n%s", diff)
		}
		if res := ask("good2"); res.StatusCode != 200 {
			t.Errorf("another principal: %d", res.StatusCode)
		}
		time.Sleep(time.Second)
		if res := ask("good1"); res.StatusCode != 200 {
			t.Errorf("after Retry-After: %d", res.StatusCode)
		}
	})
}

// TestRateLimitsThatAreSet: those of a principal and of its group bound it together with
// that of the configuration. Changes hold after a second.
func TestRateLimitsThatAreSet(t *testing.T) {
	now := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	set := map[sandbox.Principal][]usage.Rate{
		"alice": {{PerSecond: 1}, {Group: "team", PerSecond: 2}},
		"bob":   {{Group: "team", PerSecond: 2}},
		"carol": {{PerSecond: 0}},
	}
	var failure error
	reads := 0
	l := newLimits(4, func(_ context.Context, p sandbox.Principal) ([]usage.Rate, error) {
		reads++
		return set[p], failure
	})
	check := func(p sandbox.Principal, want time.Duration, text string) {
		t.Helper()
		d, why, err := l.wait(t.Context(), p, now)
		if d != want || err != nil || (d > 0 && why != text) {
			t.Errorf("%s: wait %v, %q, %v; want %v, %q", p, d, why, err, want, text)
		}
	}
	own, team := "too many requests: your limit requests-per-second is 1", "too many requests: group team's limit requests-per-second is 2"
	check("alice", 0, "")
	check("alice", 0, "")
	for range 10 { // refused requests take no place of the group
		check("alice", time.Second, own)
	}
	check("bob", 0, "")
	check("bob", 0, "")
	check("bob", time.Second/2, team)
	check("carol", time.Minute, "too many requests: your limit requests-per-second is 0")
	for range 8 {
		check("dave", 0, "")
	}
	check("dave", time.Second/4, "too many requests")
	if reads != 4 {
		t.Errorf("%d reads for four principals in one moment", reads)
	}
	set["carol"] = nil
	now = now.Add(time.Second)
	check("carol", 0, "")
	check("alice", 0, "")
	set["alice"][0].PerSecond = 100
	now = now.Add(time.Second)
	check("alice", 0, "") // reads the change
	now = now.Add(time.Second / 2)
	for range 3 {
		check("alice", 0, "")
	}
	check("alice", time.Second/2, team)
	set[""] = []usage.Rate{{PerSecond: 1}} // as the limit of each principal would
	for range 8 {
		check("", 0, "") // visitors without a token share the limit of the configuration only
	}
	check("", time.Second/4, "too many requests")
	failure = errors.New("no store")
	now = now.Add(time.Second)
	if _, _, err := l.wait(t.Context(), "alice", now); !errors.Is(err, failure) {
		t.Errorf("without a store: %v", err)
	}
}

func TestLimitsForget(t *testing.T) {
	l := newLimits(1, func(context.Context, sandbox.Principal) ([]usage.Rate, error) { return nil, nil })
	now := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	for i := range 1000 {
		l.wait(t.Context(), sandbox.Principal(fmt.Sprint(i)), now)
	}
	l.wait(t.Context(), "x", now.Add(2*sweepEvery))
	if len(l.buckets) != 1 || len(l.known) != 1 {
		t.Errorf("%d buckets and the rates of %d principals are remembered, want 1 of each", len(l.buckets), len(l.known))
	}
}

func TestLogHasNoSecrets(t *testing.T) {
	var buf bytes.Buffer
	s := newServer(t, func(o *Options) {
		o.Log = slog.New(slog.NewTextHandler(&buf, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	request(s, "POST", "/mcp?token=in-the-query", "in-the-body", "Authorization", good, "Cookie", "in-a-cookie")
	request(s, "POST", "/mcp", "in-the-body", "Authorization", "Bearer in-the-token")
	for _, secret := range []string{"in-the-query", "in-the-body", "in-a-cookie", "in-the-token"} {
		if strings.Contains(buf.String(), secret) {
			t.Errorf("the log has %s:\n%s", secret, &buf)
		}
	}
	if want := "method=POST path=/mcp status=200 bytes=16"; !strings.Contains(buf.String(), want) {
		t.Errorf("the log lacks %q:\n%s", want, &buf)
	}
	if !strings.Contains(buf.String(), "principal=good") || !strings.Contains(buf.String(), "status=401") {
		t.Errorf("the log lacks who asked or the refusal:\n%s", &buf)
	}
}

// serve starts a server on a loopback port, and returns its address and what
// ends it.
func serve(t *testing.T, s *Server) (addr string, stop func() error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, ln) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() { stop() })
	return ln.Addr().String(), stop
}

func TestShutdownFinishes(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	drained := false
	s := newServer(t, func(o *Options) {
		o.MCP = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(began)
			<-release
			io.WriteString(w, "finished")
		})
		o.Drain = func(context.Context) error {
			drained = true
			close(release)
			return nil
		}
	})
	addr, stop := serve(t, s)
	answer := make(chan string, 1)
	go func() {
		r, _ := http.NewRequest("POST", "http://"+addr+"/mcp", nil)
		r.Header.Set("Authorization", good)
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			answer <- err.Error()
			return
		}
		defer res.Body.Close()
		b, _ := io.ReadAll(res.Body)
		answer <- string(b)
	}()
	<-began
	if err := stop(); err != nil {
		t.Errorf("Serve: %v", err)
	}
	if got := <-answer; got != "finished" || !drained {
		t.Errorf("the request under way got %q, drained %v", got, drained)
	}
	if _, err := net.Dial("tcp", addr); err == nil {
		t.Error("the server still listens")
	}
}

func TestServeFails(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	if err := newServer(t, nil).Serve(t.Context(), ln); err == nil {
		t.Error("Serve on a closed listener returned no error")
	}
}

func TestHangUpEndsTheContext(t *testing.T) {
	ended := make(chan struct{})
	s := newServer(t, func(o *Options) {
		o.MCP = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.ReadAll(r.Body)
			io.WriteString(w, "first")
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
			close(ended)
		})
	})
	addr, _ := serve(t, s)
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: %s\r\nContent-Length: 2\r\n\r\nhi", good)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 5)
	if _, err := io.ReadFull(res.Body, first); err != nil || string(first) != "first" {
		t.Fatalf("a flushed piece came as %q, %v", first, err)
	}
	conn.Close()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the handler did not hear that the client hung up")
	}
}

// TestRetryAfter has an error that knows when to try again.
func TestRetryAfter(t *testing.T) {
	w := httptest.NewRecorder()
	err := sandbox.WithRetryAfter(sandbox.Errorf(sandbox.Exhausted, "full"), 1500*time.Millisecond)
	writeError(w, sandbox.Wrap(sandbox.WithHint(err, "wait"), "create sandbox", ""))
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "2" || !strings.Contains(w.Body.String(), "wait") {
		t.Errorf("%d, %v, %s", w.Code, w.Header(), w.Body)
	}
}
