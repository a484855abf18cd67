package e2bapi

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/workspace"
)

// fakeEngine has sandboxes that do nothing.
type fakeEngine struct {
	program string // address of what listens in every sandbox
	boxes   map[string]*fakeBox
	created sandbox.CreateRequest
	// restarts are the sandboxes that were restarted.
	restarts []string
	rules    []sandbox.Secret // of the last change of a network
	allowed  sandbox.Network  // the operator's; "" is all
	// forwarded is the last request that came to a guest, and answer what it
	// answers.
	forwarded *http.Request
	body      []byte // of forwarded, for some paths
	defaults  sandbox.ProgramDefaults
	answer    func() (*http.Response, error)
	runs      []sandbox.Run
	outputs   map[string]sandbox.Output // by run ID
	volumes   map[string]*fakeVolume    // by handle
	spaces    *workspace.Set
	open      int      // volumes that are not released
	files     []string // that every sandbox has
	unpacked  []string // links that were unpacked
	snaps     fakeSnapshots
}

type fakeBox struct {
	sandbox.Sandbox
	principal sandbox.Principal
}

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func (e *fakeEngine) add(p sandbox.Principal, change func(*sandbox.Sandbox)) string {
	sb := sandbox.Sandbox{
		ID: sandbox.NewID(), State: sandbox.Running, Image: sandbox.ImageHost, Network: sandbox.NetworkNone,
		Limits: sandbox.DefaultLimits(), Created: now.Add(time.Duration(len(e.boxes)) * time.Second), Ends: now.Add(time.Minute),
	}
	if change != nil {
		change(&sb)
	}
	e.boxes[sb.ID] = &fakeBox{sb, p}
	return sb.ID
}

func (e *fakeEngine) find(p sandbox.Principal, id string) (*fakeBox, error) {
	if b := e.boxes[id]; b != nil && b.principal == p {
		return b, nil
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "no sandbox")
}

func (e *fakeEngine) Create(_ context.Context, p sandbox.Principal, r sandbox.CreateRequest) (sandbox.Sandbox, error) {
	e.created = r
	return e.boxes[e.add(p, func(sb *sandbox.Sandbox) {
		sb.Labels, sb.Ends, sb.Workspace, sb.Volumes = r.Labels, now.Add(r.TTL), r.Workspace, r.Volumes
		if r.Network != "" {
			sb.Network = r.Network
		}
	})].Sandbox, nil
}

func (e *fakeEngine) Get(_ context.Context, p sandbox.Principal, id string) (sandbox.Sandbox, error) {
	b, err := e.find(p, id)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	return b.Sandbox, nil
}

func (e *fakeEngine) List(_ context.Context, p sandbox.Principal) ([]sandbox.Sandbox, error) {
	var list []sandbox.Sandbox
	for _, b := range e.boxes {
		if b.principal == p {
			list = append(list, b.Sandbox)
		}
	}
	return list, nil
}

func (e *fakeEngine) set(p sandbox.Principal, id string, change func(*sandbox.Sandbox)) error {
	b, err := e.find(p, id)
	if err == nil {
		change(&b.Sandbox)
	}
	return err
}

func (e *fakeEngine) Stop(_ context.Context, p sandbox.Principal, id string) error {
	return e.set(p, id, func(sb *sandbox.Sandbox) { sb.State = sandbox.Stopped })
}

func (e *fakeEngine) Hibernate(_ context.Context, p sandbox.Principal, id string) error {
	return e.set(p, id, func(sb *sandbox.Sandbox) { sb.State = sandbox.Hibernated })
}

func (e *fakeEngine) Restart(_ context.Context, p sandbox.Principal, id string) error {
	return e.set(p, id, func(*sandbox.Sandbox) { e.restarts = append(e.restarts, id) })
}

func (e *fakeEngine) Wake(_ context.Context, p sandbox.Principal, id string) error {
	return e.set(p, id, func(sb *sandbox.Sandbox) { sb.State = sandbox.Running })
}

func (e *fakeEngine) SetEnd(ctx context.Context, p sandbox.Principal, id string, ttl time.Duration) (sandbox.Sandbox, error) {
	err := e.set(p, id, func(sb *sandbox.Sandbox) { sb.Ends = now.Add(ttl) })
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	return e.Get(ctx, p, id)
}

// HasImage has one image.
func (e *fakeEngine) HasImage(_ context.Context, _ sandbox.Principal, ref string) (bool, error) {
	return ref == "team/image:1", nil
}

// AllowedNetwork allows e.allowed, or everything.
func (e *fakeEngine) AllowedNetwork(n sandbox.Network) sandbox.Network {
	if e.allowed == "" {
		return n
	}
	return n.Common(e.allowed)
}

func (e *fakeEngine) SetNetworkRules(ctx context.Context, p sandbox.Principal, id string, n sandbox.Network, rules []sandbox.Secret) (sandbox.Sandbox, error) {
	e.rules = rules
	if err := e.set(p, id, func(sb *sandbox.Sandbox) { sb.Network = n }); err != nil {
		return sandbox.Sandbox{}, err
	}
	return e.Get(ctx, p, id)
}

func (e *fakeEngine) Forward(p sandbox.Principal, id string, d sandbox.ProgramDefaults, req *http.Request) (*http.Response, error) {
	if _, err := e.find(p, id); err != nil {
		return nil, err
	}
	switch req.URL.Path {
	case guestapi.ProcStart, guestapi.PathExecute, guestapi.PathContexts: // a guest reads these
		var err error
		if e.body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
	}
	e.forwarded, e.defaults = req, d
	return e.answer()
}

// Observe answers for running sandboxes.
func (e *fakeEngine) Observe(id string, _ *http.Request) (*http.Response, error) {
	if b := e.boxes[id]; b == nil || b.State != sandbox.Running {
		return nil, sandbox.Errorf(sandbox.Conflict, "it may be paused")
	}
	return e.answer()
}

func (e *fakeEngine) Runs(_ context.Context, p sandbox.Principal, id string, _ int) ([]sandbox.Run, error) {
	_, err := e.find(p, id)
	return e.runs, err
}

func (e *fakeEngine) Output(_ context.Context, _ sandbox.Principal, runID string, _ int) (sandbox.Output, error) {
	return e.outputs[runID], nil
}

// DialPort connects to e.program, whatever the port, unless there is none.
func (e *fakeEngine) DialPort(ctx context.Context, p sandbox.Principal, id string, port int) (net.Conn, error) {
	if _, err := e.find(p, id); err != nil {
		return nil, err
	}
	if e.program == "" {
		return nil, sandbox.Errorf(sandbox.Unavailable, "nothing listens on port %d", port)
	}
	return new(net.Dialer).DialContext(ctx, "tcp", e.program)
}

func (e *fakeEngine) Owner(_ context.Context, id string) (sandbox.Principal, error) {
	if b := e.boxes[id]; b != nil && b.State != sandbox.Stopped {
		return b.principal, nil
	}
	return "", sandbox.Errorf(sandbox.NotFound, "no sandbox")
}

func (e *fakeEngine) Labels(_ context.Context, id string) (map[string]string, error) {
	if b := e.boxes[id]; b != nil {
		return b.Labels, nil
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "no sandbox")
}

func (e *fakeEngine) Observable() []string {
	var ids []string
	for id, b := range e.boxes {
		if b.State == sandbox.Running {
			ids = append(ids, id)
		}
	}
	return ids
}

func (e *fakeEngine) Live(context.Context) ([]string, error) {
	var ids []string
	for id := range e.boxes {
		ids = append(ids, id)
	}
	return ids, nil
}

// fakeAuth knows tokens that are principals, those with a capital without the
// scope files.
type fakeAuth struct{}

// Gone has the last token of one principal revoked.
func (fakeAuth) Gone(_ context.Context, id auth.Identity) (bool, error) {
	return id.Principal == "revoked", nil
}

func (fakeAuth) Verify(_ context.Context, token string) (auth.Identity, error) {
	switch token {
	case "alice", "mallory":
		return auth.Identity{Principal: sandbox.Principal(token), Scopes: []auth.Scope{auth.ScopeRun, auth.ScopeFiles}}, nil
	case "Runner":
		return auth.Identity{Principal: "alice", Scopes: []auth.Scope{auth.ScopeRun}}, nil
	}
	return auth.Identity{}, sandbox.Errorf(sandbox.Unauthenticated, "token: not valid")
}

type fakeAccess struct{}

func (fakeAccess) Token(id string) string      { return "access-" + id }
func (fakeAccess) Check(id, token string) bool { return token == "access-"+id }

func (fakeAccess) TrafficToken(id string) string      { return "traffic-" + id }
func (fakeAccess) CheckTraffic(id, token string) bool { return token == "traffic-"+id }

func answer(status int, body string) func() (*http.Response, error) {
	return func() (*http.Response, error) {
		return &http.Response{StatusCode: status, ContentLength: int64(len(body)), Header: http.Header{
			"Content-Type": {"text/html"}, "Set-Cookie": {"a=b"}, "Access-Control-Allow-Origin": {"*"}, "Content-Length": {fmt.Sprint(len(body))},
		}, Body: io.NopCloser(strings.NewReader(body))}, nil
	}
}

func newTest(t *testing.T) (*fakeEngine, *Server, *httptest.Server) {
	t.Helper()
	e := &fakeEngine{boxes: map[string]*fakeBox{}, answer: answer(200, "<b>")}
	s := New(Options{Engine: e, Auth: fakeAuth{}, Access: fakeAccess{}, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return now }})
	srv := httptest.NewServer(s.Authenticate(s))
	t.Cleanup(srv.Close)
	return e, s, srv
}

// do sends a request; pairs are headers.
func do(t *testing.T, method, address, body string, pairs ...string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i] == "Host" {
			req.Host = pairs[i+1]
			continue
		}
		req.Header.Set(pairs[i], pairs[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(text)
}

func TestKeys(t *testing.T) {
	for _, token := range []string{"gbx_Ab-_0", "x"} {
		key := Key(token)
		if strings.Trim(strings.TrimPrefix(key, KeyPrefix), "0123456789abcdef") != "" || !strings.HasPrefix(key, KeyPrefix) {
			t.Errorf("key %q is not what SDKs take", key)
		}
		if got := tokenOf(key); got != token {
			t.Errorf("the token of %q is %q, want %q", key, got, token)
		}
	}
	for _, key := range []string{"gbx_Ab", "e2b_xyz"} {
		if got := tokenOf(key); got != key {
			t.Errorf("the token of %q is %q", key, got)
		}
	}
}

// TestWhoMay is every way to come in, and to be sent away.
func TestWhoMay(t *testing.T) {
	e, _, srv := newTest(t)
	id := e.add("alice", nil)
	dead := e.add("alice", func(sb *sandbox.Sandbox) { sb.State = sandbox.Stopped })
	never, plain := sandbox.NewID(), sandbox.HostID(id)
	sign := func(id, text string) string {
		sum := sha256.Sum256([]byte(strings.ReplaceAll(text, "TOKEN", "access-"+id)))
		return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
	}
	file := func(q ...string) string {
		v := url.Values{}
		for i := 0; i < len(q); i += 2 {
			v.Set(q[i], q[i+1])
		}
		return "/files?" + v.Encode()
	}
	later, before := fmt.Sprint(now.Unix()+60), fmt.Sprint(now.Unix()-1)
	for name, tt := range map[string]struct {
		method, path string
		headers      []string
		want         int
	}{
		"a key":                       {"GET", "/v2/sandboxes", []string{"X-API-KEY", Key("alice")}, 200},
		"a token as a key":            {"GET", "/v2/sandboxes", []string{"X-API-KEY", "alice"}, 200},
		"a bearer":                    {"GET", "/v2/sandboxes", []string{"Authorization", "Bearer alice"}, 200},
		"no key":                      {"GET", "/v2/sandboxes", nil, 401},
		"a bad key":                   {"GET", "/v2/sandboxes", []string{"X-API-KEY", Key("eve")}, 401},
		"too few scopes":              {"GET", "/v2/sandboxes", []string{"X-API-KEY", Key("Runner")}, 403},
		"too few scopes for a create": {"POST", "/v2/sandboxes", []string{"X-API-KEY", Key("Runner")}, 403},
		"another's":                   {"GET", "/sandboxes/" + id, []string{"X-API-KEY", Key("mallory")}, 404},
		"one's own":                   {"GET", "/sandboxes/" + id, []string{"X-API-KEY", Key("alice")}, 200},
		"one that stopped":            {"GET", "/sandboxes/" + dead, []string{"X-API-KEY", Key("alice")}, 404},

		"access":                    {"GET", "/health", []string{"E2b-Sandbox-Id", id, "X-Access-Token", "access-" + id}, 200},
		"contexts by traffic token": {"GET", "/contexts", []string{"E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "49999", "E2B-Traffic-Access-Token", "traffic-" + id}, 200},
		"a new context by it":       {"POST", "/contexts", []string{"E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "49999", "E2B-Traffic-Access-Token", "traffic-" + id}, 200},
		"a restart by it":           {"POST", "/contexts/a/restart", []string{"E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "49999", "E2B-Traffic-Access-Token", "traffic-" + id}, 200},
		"code by it":                {"POST", "/execute", []string{"E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "49999", "E2B-Traffic-Access-Token", "traffic-" + id}, 401},
		"code by both":              {"POST", "/execute", []string{"E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "49999", "E2B-Traffic-Access-Token", "traffic-" + id, "X-Access-Token", "access-" + id}, 200},
		"a port by it":              {"GET", "/", []string{"E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "8080", "E2B-Traffic-Access-Token", "traffic-" + id}, 502},
		"another's port by it":      {"GET", "/", []string{"E2b-Sandbox-Id", dead, "E2b-Sandbox-Port", "8080", "E2B-Traffic-Access-Token", "traffic-" + id}, 403},
		"the agent by it":           {"GET", "/health", []string{"E2b-Sandbox-Id", id, "E2B-Traffic-Access-Token", "traffic-" + id}, 401},
		"files by it":               {"GET", file("path", "a"), []string{"E2b-Sandbox-Id", id, "E2B-Traffic-Access-Token", "traffic-" + id}, 401},
		"the agent by it as access": {"GET", "/health", []string{"E2b-Sandbox-Id", id, "X-Access-Token", "traffic-" + id}, 401},
		"the API by it":             {"GET", "/sandboxes/" + id, []string{"X-API-KEY", "traffic-" + id}, 401},
		// Earlier versions gave the access token out as the traffic token.
		"contexts by an old one":      {"GET", "/contexts", []string{"E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "49999", "E2B-Traffic-Access-Token", "access-" + id}, 200},
		"a port by an old one":        {"GET", "/", []string{"E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "8080", "E2B-Traffic-Access-Token", "access-" + id}, 502},
		"the agent by an old one":     {"GET", "/health", []string{"E2b-Sandbox-Id", id, "E2B-Traffic-Access-Token", "access-" + id}, 401},
		"access by host":              {"GET", "/health", []string{"Host", "49983-" + id + ".example.com", "X-Access-Token", "access-" + id}, 200},
		"one's own, without _":        {"GET", "/sandboxes/" + plain, []string{"X-API-KEY", Key("alice")}, 200},
		"another's, without _":        {"GET", "/sandboxes/" + plain, []string{"X-API-KEY", Key("mallory")}, 404},
		"access without _":            {"GET", "/health", []string{"E2b-Sandbox-Id", plain, "X-Access-Token", "access-" + id}, 200},
		"access by host without _":    {"GET", "/health", []string{"Host", "49983-" + plain + ".example.com", "X-Access-Token", "access-" + id}, 200},
		"a signature without _":       {"GET", file("path", "a", "signature", sign(id, "a:read::TOKEN")), []string{"E2b-Sandbox-Id", plain}, 200},
		"a token for no such name":    {"GET", "/health", []string{"E2b-Sandbox-Id", plain, "X-Access-Token", "access-" + plain}, 401},
		"a name that is too long":     {"GET", "/health", []string{"E2b-Sandbox-Id", plain + "a", "X-Access-Token", "access-" + id}, 401},
		"no access token":             {"GET", "/health", []string{"E2b-Sandbox-Id", id}, 401},
		"an API key for one":          {"GET", "/health", []string{"E2b-Sandbox-Id", id, "X-API-KEY", Key("alice"), "X-Access-Token", Key("alice")}, 401},
		"that of another sandbox":     {"GET", "/health", []string{"E2b-Sandbox-Id", id, "X-Access-Token", "access-" + dead}, 401},
		"none of one that is not":     {"GET", "/health", []string{"E2b-Sandbox-Id", never}, 401},
		"a stopped sandbox":           {"GET", "/health", []string{"E2b-Sandbox-Id", dead, "X-Access-Token", "access-" + dead}, 502},
		"another port":                {"GET", "/health", []string{"E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "8080", "X-Access-Token", "access-" + id}, 502},
		"another port, without":       {"GET", "/health", []string{"E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "8080", "X-API-KEY", Key("alice")}, 403},
		"another port of none":        {"GET", "/health", []string{"E2b-Sandbox-Id", never, "E2b-Sandbox-Port", "8080"}, 403},
		"the interpreter, without":    {"GET", "/contexts", []string{"E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "49999"}, 401},
		"another port of one stopped": {"GET", "/", []string{"Host", "8080-" + dead + ".example.com", "X-Access-Token", "access-" + dead}, 502},
		"no port":                     {"GET", "/health", []string{"E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "x", "X-Access-Token", "access-" + id}, 400},
		"what the agent has not":      {"GET", "/init", []string{"E2b-Sandbox-Id", id, "X-Access-Token", "access-" + id}, 404},
		"what is the guest's own":     {"POST", "/limits", []string{"E2b-Sandbox-Id", id, "X-Access-Token", "access-" + id}, 404},
		"the interpreter's elsewhere": {"POST", "/execute", []string{"E2b-Sandbox-Id", id, "X-Access-Token", "access-" + id}, 404},
		"a context's own path":        {"POST", "/contexts/a/input", []string{"E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "49999", "X-Access-Token", "access-" + id}, 404},

		"a signature":                {"GET", file("path", "a:b", "signature", sign(id, "a:b:read::TOKEN")), nil, 200},
		"with a user":                {"GET", file("path", "a", "username", "root", "signature", sign(id, "a:read:root:TOKEN")), nil, 200},
		"with a header":              {"GET", file("path", "a", "signature", sign(id, "a:read::TOKEN")), []string{"E2b-Sandbox-Id", id}, 200},
		"of another sandbox":         {"GET", file("path", "a", "signature", sign(dead, "a:read::TOKEN")), []string{"E2b-Sandbox-Id", id}, 401},
		"that lasts":                 {"GET", file("path", "a", "signature", sign(id, "a:read::TOKEN:"+later), "signature_expiration", later), nil, 200},
		"that expired":               {"GET", file("path", "a", "signature", sign(id, "a:read::TOKEN:"+before), "signature_expiration", before), nil, 401},
		"whose expiry was taken off": {"GET", file("path", "a", "signature", sign(id, "a:read::TOKEN:"+before)), nil, 401},
		"whose expiry is nonsense":   {"GET", file("path", "a", "signature", sign(id, "a:read::TOKEN:x"), "signature_expiration", "x"), nil, 401},
		"to write":                   {"POST", file("path", "a", "signature", sign(id, "a:write::TOKEN")), nil, 200},
		"to read, for a write":       {"POST", file("path", "a", "signature", sign(id, "a:read::TOKEN")), nil, 401},
		"for another user":           {"GET", file("path", "a", "username", "root", "signature", sign(id, "a:read::TOKEN")), nil, 401},
		"an empty one":               {"GET", file("path", "a", "signature", ""), nil, 401},
		"none":                       {"GET", file("path", "a"), nil, 401},
		"for what is no file":        {"GET", "/health?signature=" + url.QueryEscape(sign(id, "/health:read::TOKEN")), []string{"E2b-Sandbox-Id", id}, 401},
	} {
		t.Run(name, func(t *testing.T) {
			status, _, body := do(t, tt.method, srv.URL+tt.path, "", tt.headers...)
			if status != tt.want {
				t.Errorf("status %d, want %d: %s", status, tt.want, body)
			}
		})
	}
}

// TestPort: what listens on another port is reached, and sees nothing by which
// its clients prove who they are.
func TestPort(t *testing.T) {
	e, _, srv := newTest(t)
	id := e.add("alice", nil)
	prog := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Strict-Transport-Security", "x")
		for name := range r.Header {
			if v := r.Header.Get(name); strings.Contains(v, id) && name != "X-Forwarded-Host" || strings.Contains(v, "alice") {
				t.Errorf("the program got %s: %s", name, v)
			}
		}
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %s %s", r.Method, r.RequestURI, r.Host, r.Header.Get("Authorization"), body)
	}))
	t.Cleanup(prog.Close)
	e.program = prog.Listener.Addr().String()
	for _, tt := range []struct{ authorization, want string }{
		{"Basic x", "POST /a?b localhost:3000 Basic x sent"},
		{"Bearer alice", "POST /a?b localhost:3000  sent"},
	} {
		status, h, body := do(t, "POST", srv.URL+"/a?b", "sent", "Host", "3000-"+id+".example.com", "E2B-Traffic-Access-Token", "access-"+id,
			"X-API-KEY", Key("alice"), "Authorization", tt.authorization)
		if status != 200 || body != tt.want || h.Get("Strict-Transport-Security") != "" {
			t.Errorf("status %d, %q, %v; want %q", status, body, h, tt.want)
		}
	}
}

// TestContextFields has holders of the two tokens make a context with fields beyond E2B's.
// Variables can have an interpreter run code, so they need the access token.
func TestContextFields(t *testing.T) {
	e, _, srv := newTest(t)
	id := e.add("alice", nil)
	const plain, more = `{"language":"bash","cwd":"/tmp"}`, `{"language":"bash","cwd":"/tmp","env":{"BASH_ENV":"$(id)"},"prepare":["this"]}`
	for _, tt := range []struct {
		header, token, body string
		want                int
	}{
		{"X-Access-Token", "access-", more, 200},
		{"E2B-Traffic-Access-Token", "traffic-", plain, 200},
		{"E2B-Traffic-Access-Token", "traffic-", more, 400},
		{"E2B-Traffic-Access-Token", "access-", more, 400}, // of an earlier version
		{"E2B-Traffic-Access-Token", "traffic-", "no JSON", 400},
	} {
		e.forwarded, e.body = nil, nil
		status, _, body := do(t, "POST", srv.URL+"/contexts", tt.body, "E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "49999", tt.header, tt.token+id)
		if status != tt.want {
			t.Errorf("%s %s: %d %s", tt.header, tt.body, status, body)
		}
		if came := e.forwarded != nil; came != (status == 200) || came && (string(e.body) != tt.body || e.forwarded.ContentLength != int64(len(tt.body))) {
			t.Errorf("%s %s: the guest gets %s", tt.header, tt.body, e.body)
		}
	}
}

// TestForwardedHeaders: neither side gets headers of the other that it has no
// use for.
func TestForwardedHeaders(t *testing.T) {
	e, _, srv := newTest(t)
	id := e.add("alice", nil)
	_, h, body := do(t, "GET", srv.URL+"/files?path=x", "", "E2b-Sandbox-Id", id, "X-Access-Token", "access-"+id,
		"X-API-KEY", "alice", "Cookie", "c=d", "Authorization", "Basic dXNlcjo=", "Range", "bytes=1-", "x-metadata-author", "a", "X-Metadata", "b")
	if body != "<b>" || h.Get("Set-Cookie") != "" || h.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("answered %q with %v", body, h)
	}
	if h.Get("Content-Disposition") != "attachment" || h.Get("X-Content-Type-Options") != "nosniff" || !strings.HasPrefix(h.Get("Content-Security-Policy"), "sandbox") {
		t.Errorf("a browser would run what a guest sends: %v", h)
	}
	want := http.Header{"Authorization": {"Basic dXNlcjo="}, "Range": {"bytes=1-"}, "X-Metadata-Author": {"a"}}
	if diff := cmp.Diff(want, e.forwarded.Header); diff != "" {
		t.Errorf("the guest gets other headers:\n%s", diff)
	}
	e.answer = answer(101, "")
	if status, _, _ := do(t, "GET", srv.URL+"/files?path=x", "", "E2b-Sandbox-Id", id, "X-Access-Token", "access-"+id); status != 502 {
		t.Errorf("a guest that switches protocols: status %d", status)
	}
}

type breaking struct{ io.Reader }

func (b breaking) Read(p []byte) (int, error) {
	if n, err := b.Reader.Read(p); err == nil {
		return n, nil
	}
	return 0, io.ErrUnexpectedEOF
}

// TestBrokenAnswer: who reads an answer that breaks off sees that it did.
func TestBrokenAnswer(t *testing.T) {
	e, s, srv := newTest(t)
	id := e.add("alice", nil)
	e.answer = func() (*http.Response, error) {
		return &http.Response{StatusCode: 200, ContentLength: -1, Header: http.Header{}, Body: io.NopCloser(breaking{strings.NewReader("part")})}, nil
	}
	get := func() error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/files?path=x", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("E2b-Sandbox-Id", id)
		req.Header.Set("X-Access-Token", "access-"+id)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, err = io.ReadAll(resp.Body)
		return err
	}
	if get() == nil {
		t.Error("an answer that broke off looks whole")
	}
	e.answer = func() (*http.Response, error) {
		r, w := io.Pipe()
		context.AfterFunc(e.forwarded.Context(), func() { w.CloseWithError(context.Canceled) })
		s.Shutdown()
		return &http.Response{StatusCode: 200, ContentLength: -1, Header: http.Header{}, Body: r}, nil
	}
	if get() == nil {
		t.Error("an answer that the shutdown cut off looks whole")
	}
}

// TestRefusals: errors come in the form that the SDK reads at that place.
func TestRefusals(t *testing.T) {
	e, _, srv := newTest(t)
	id := e.add("alice", func(sb *sandbox.Sandbox) { sb.State = sandbox.Hibernated })
	access := []string{"E2b-Sandbox-Id", id, "X-Access-Token", "access-" + id}
	status, _, body := do(t, "POST", srv.URL+guestapi.FSStat, "{}", append(access, "Content-Type", guestapi.ContentTypeUnary)...)
	if status != 502 || !strings.Contains(body, `"code":"unavailable"`) || !strings.Contains(body, "paused") {
		t.Errorf("a unary call: status %d, %s", status, body)
	}
	status, h, body := do(t, "POST", srv.URL+guestapi.ProcStart, "", append(access, "Content-Type", guestapi.ContentTypeStream)...)
	flags, msg, err := guestapi.ReadEnvelope(strings.NewReader(body), nil, 1<<20)
	if status != 200 || h.Get("Content-Type") != guestapi.ContentTypeStream || err != nil || flags != guestapi.FlagEndStream || !strings.Contains(string(msg), `"unavailable"`) {
		t.Errorf("a stream: status %d, %q", status, body)
	}
	e.boxes[id].Labels = map[string]string{labelAutoResume: "true"}
	if status, _, _ := do(t, "POST", srv.URL+guestapi.FSStat, "{}", access...); status != 200 {
		t.Errorf("a paused sandbox that wakes by itself: status %d", status)
	}
	for path, want := range map[string]int{"/nothing": 404, "/templates/x": 501, "/sandboxes/" + id + "/fork": 404} {
		status, _, body := do(t, "GET", srv.URL+path, "", "X-API-KEY", "alice")
		var got struct {
			Code    int
			Message string
		}
		if err := json.Unmarshal([]byte(body), &got); err != nil || status != want || got.Code != want || got.Message == "" {
			t.Errorf("%s: status %d, want %d: %s", path, status, want, body)
		}
	}
}

func TestCreate(t *testing.T) {
	e, _, srv := newTest(t)
	for name, tt := range map[string]struct {
		body string
		want int
		req  sandbox.CreateRequest
	}{
		"the least": {`{"templateID":"base"}`, 201, sandbox.CreateRequest{TTL: 5 * time.Minute}},
		"an image":  {`{"templateID":"python:3.13","timeout":60}`, 201, sandbox.CreateRequest{Image: "python:3.13", TTL: time.Minute}},
		"all": {`{"templateID":"code-interpreter-v1","timeout":60,"metadata":{"a":"b"},"envVars":{"C":"d"},"secure":true,"autoPause":true,"autoResume":{"enabled":true},"allow_internet_access":true}`, 201,
			sandbox.CreateRequest{TTL: time.Minute, Env: map[string]string{"C": "d"}, AtEnd: sandbox.AtEndHibernate, Network: sandbox.NetworkInternet}},
		"no network":    {`{"allow_internet_access":false}`, 201, sandbox.CreateRequest{TTL: 5 * time.Minute, Network: sandbox.NetworkNone}},
		"all denied":    {`{"network":{"denyOut":["0.0.0.0/0"]}}`, 201, sandbox.CreateRequest{TTL: 5 * time.Minute, Network: sandbox.NetworkNone}},
		"some allowed":  {`{"network":{"denyOut":["0.0.0.0/0"],"allowOut":["example.com","192.0.2.1/32"]}}`, 201, sandbox.CreateRequest{TTL: 5 * time.Minute, Network: "example.com,192.0.2.1"}},
		"all allowed":   {`{"network":{"allowOut":["0.0.0.0/0"]}}`, 201, sandbox.CreateRequest{TTL: 5 * time.Minute, Network: sandbox.NetworkInternet}},
		"some denied":   {`{"network":{"denyOut":["192.0.2.1"]}}`, 201, sandbox.CreateRequest{TTL: 5 * time.Minute, Network: "internet,!192.0.2.1"}},
		"a bad rule":    {`{"network":{"denyOut":["0.0.0.0/0"],"allowOut":["not a host"]}}`, 400, sandbox.CreateRequest{}},
		"public ports":  {`{"network":{"allowPublicTraffic":true}}`, 201, sandbox.CreateRequest{TTL: 5 * time.Minute}},
		"no host":       {`{"network":{"maskRequestHost":"a b"}}`, 400, sandbox.CreateRequest{}},
		"a proxy":       {`{"network":{"egressProxy":{"address":"x"}}}`, 501, sandbox.CreateRequest{}},
		"no transform":  {`{"network":{"rules":{"x.com":[]}}}`, 201, sandbox.CreateRequest{TTL: 5 * time.Minute}},
		"volumes":       {`{"volumeMounts":[{"name":"a","path":"/b"}]}`, 404, sandbox.CreateRequest{}},
		"mcp":           {`{"mcp":{"a":{"k":"v"}}}`, 201, sandbox.CreateRequest{TTL: 5 * time.Minute}},
		"no mcp":        {`{"mcp":null}`, 201, sandbox.CreateRequest{TTL: 5 * time.Minute}},
		"a bad mcp":     {`{"mcp":["a"]}`, 400, sandbox.CreateRequest{}},
		"iam":           {`{"iam":{"tokens":{}}}`, 501, sandbox.CreateRequest{}},
		"disk only":     {`{"autoPause":true,"autoPauseMemory":false}`, 201, sandbox.CreateRequest{TTL: 5 * time.Minute, AtEnd: sandbox.AtEndHibernateFiles}},
		"disk, resumed": {`{"autoPause":true,"autoPauseMemory":false,"autoResume":{"enabled":true}}`, 400, sandbox.CreateRequest{}},
		"disk, killed":  {`{"autoPauseMemory":false}`, 201, sandbox.CreateRequest{TTL: 5 * time.Minute}},
		"unknown field": {`{"gpu":true}`, 400, sandbox.CreateRequest{}},
		"no time":       {`{"timeout":0}`, 201, sandbox.CreateRequest{TTL: sandbox.MinIdle}},
		"negative time": {`{"timeout":-1}`, 400, sandbox.CreateRequest{}},
		"our label":     {`{"metadata":{"glovebox.e2b/template":"x"}}`, 400, sandbox.CreateRequest{}},
		"nonsense":      {`{`, 400, sandbox.CreateRequest{}},
		"too long":      {`{"templateID":"` + strings.Repeat("x", maxBody) + `"}`, 400, sandbox.CreateRequest{}},
	} {
		t.Run(name, func(t *testing.T) {
			status, _, body := do(t, "POST", srv.URL+"/v2/sandboxes", tt.body, "X-API-KEY", "alice")
			if status != tt.want {
				t.Fatalf("status %d, want %d: %s", status, tt.want, body)
			}
			if status != 201 {
				return
			}
			e.created.Labels, tt.req.Restless = nil, true
			if diff := cmp.Diff(tt.req, e.created); diff != "" {
				t.Errorf("the engine is asked for something else:\n%s", diff)
			}
			if !strings.Contains(body, `"domain":"localhost:`) {
				t.Errorf("without a domain the SDK talks to E2B's: %s", body)
			}
		})
	}
}

// TestList: filters and pages, which together are all that match, once each.
func TestList(t *testing.T) {
	e, _, srv := newTest(t)
	var want []string
	for i := range 7 {
		want = append(want, e.add("alice", func(sb *sandbox.Sandbox) {
			sb.Labels = map[string]string{"n": fmt.Sprint(i % 2), "a b&=%": "c d&=%", labelTemplate: "t"}
			if i == 3 {
				sb.State = sandbox.Hibernated
			}
			if i > 4 {
				sb.Created = now // two at one moment
			}
		}))
	}
	e.add("mallory", nil)
	e.add("alice", func(sb *sandbox.Sandbox) { sb.State = sandbox.Stopped })
	pages := func(q string) (ids []string) {
		t.Helper()
		next := ""
		for {
			status, h, body := do(t, "GET", srv.URL+"/v2/sandboxes?limit=2&"+q+"&nextToken="+next, "", "X-API-KEY", "alice")
			var got []entry
			if err := json.Unmarshal([]byte(body), &got); err != nil || status != 200 {
				t.Fatalf("%s: status %d, %s", q, status, body)
			}
			for _, sb := range got {
				if strings.Contains(sb.SandboxID, "_") {
					t.Errorf("%s: the list names %s", q, sb.SandboxID)
				}
				ids = append(ids, sandbox.CanonicalID(sb.SandboxID))
			}
			if next = h.Get("X-Next-Token"); next == "" {
				return ids
			}
			if len(got) != 2 {
				t.Fatalf("a page of %d that is not the last", len(got))
			}
		}
	}
	descending, ascending := pages(""), pages("order=asc")
	slices.Reverse(ascending)
	if diff := cmp.Diff(descending, ascending); diff != "" {
		t.Errorf("the orders differ:\n%s", diff)
	}
	for q, n := range map[string]int{
		"": 7, "state=paused": 1, "state=running": 6, "state=running,paused": 7, "state=running&state=paused": 7,
		"metadata=" + url.QueryEscape("n=1"): 3, "metadata=" + url.QueryEscape("n=9"): 0, "template=t": 7, "template=u": 0,
		"metadata=" + url.QueryEscape("a%2520b%2526%253D%2525=c%2520d%2526%253D%2525&n=0"): 4,
		"metadata=" + url.QueryEscape(labelTemplate+"=t"):                                  0,
		"startedAfter=" + now.Add(2*time.Second).Format(time.RFC3339):                      2,
	} {
		got := pages(q)
		if len(got) != n || len(slices.Compact(slices.Sorted(slices.Values(got)))) != n {
			t.Errorf("%s: %d sandboxes, want %d", q, len(got), n)
		}
		for _, id := range got {
			if !slices.Contains(want, id) {
				t.Errorf("%s: %s is not among those that alice has", q, id)
			}
		}
	}
	for _, q := range []string{"state=odd", "limit=0", "limit=101", "limit=x", "order=up", "nextToken=x", "startedAfter=x", "metadata=%25zz"} {
		if status, _, body := do(t, "GET", srv.URL+"/v2/sandboxes?"+q, "", "X-API-KEY", "alice"); status != 400 {
			t.Errorf("%s: status %d, %s", q, status, body)
		}
	}
	if _, _, body := do(t, "GET", srv.URL+"/sandboxes", "", "X-API-KEY", "alice"); strings.Count(body, `"sandboxID"`) != 6 {
		t.Errorf("the list of before pages: %s", body)
	}
}

// FuzzQuery: whatever a client asks for is refused or understood.
func FuzzQuery(f *testing.F) {
	f.Add("state=running,paused&metadata=a%3Db&limit=3&order=asc&nextToken=MTIgeA&startedAfter=2026-01-01T00:00:00Z")
	f.Fuzz(func(t *testing.T, text string) {
		v, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		q, err := parseQuery(v)
		if err != nil {
			if sandbox.KindOf(err) != sandbox.Invalid {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		if q.limit < 1 || q.limit > maxPage {
			t.Fatalf("%q: limit %d", text, q.limit)
		}
		if q.from != nil {
			again, err := parseCursor(q.from.String())
			if err != nil || *again != *q.from {
				t.Fatalf("%q: cursor %v reads as %v, %v", text, q.from, again, err)
			}
		}
	})
}
