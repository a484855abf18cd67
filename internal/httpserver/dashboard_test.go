package httpserver

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// pages is a Dashboard for a person with the header Session.
type pages struct{}

func (pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, _ := auth.FromContext(r.Context())
	io.WriteString(w, "page of "+string(id.Principal))
}

func (pages) Authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.Header.Get("Session")
		if name == "" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(auth.NewContext(r.Context(), auth.Identity{Principal: sandbox.Principal(name)})))
	})
}

func (pages) Refuse(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), sandbox.KindOf(err).HTTPStatus())
}
func (pages) Lasts(r *http.Request) bool { return r.URL.Path == "/ui/events" }

// TestDashboard asks for the pages, and for what clients other than browsers get at
// the same server.
func TestDashboard(t *testing.T) {
	const browser = "text/html,application/xhtml+xml,*/*;q=0.8"
	with := newServer(t, func(o *Options) { o.Dashboard = pages{} })
	without := newServer(t, nil)
	for _, test := range []struct {
		server       *Server
		method, path string
		headers      []string
		want         int
		text         string
	}{
		{with, "GET", "/", []string{"Accept", browser}, 303, ""},
		{with, "GET", "/", nil, 404, "MCP is at /mcp"},
		{with, "GET", "/", []string{"Accept", "application/json, text/event-stream"}, 404, "MCP is at /mcp"},
		{with, "POST", "/", []string{"Accept", browser}, 404, "MCP is at /mcp"},
		{with, "GET", "/sandboxes", []string{"Accept", browser}, 404, "MCP is at /mcp"},
		{with, "GET", "/.well-known/oauth-authorization-server", []string{"Accept", browser}, 404, "token"},
		{with, "POST", "/register", nil, 404, "access_denied"},
		{with, "GET", "/mcp", []string{"Accept", browser}, 401, "Authorization"},
		{with, "GET", "/mcp", []string{"Session", "alice"}, 401, "Authorization"},
		{with, "GET", "/ui/", nil, 401, ""},
		{with, "GET", "/ui/", []string{"Authorization", "Bearer good"}, 401, ""},
		{with, "GET", "/ui/", []string{"Session", "alice"}, 200, "page of alice"},
		{with, "GET", "/ui/events", []string{"Session", "alice"}, 200, "page of alice"},
		{with, "GET", "/ui/", []string{"Session", "alice", "Host", "evil.example"}, 403, "Host header"},
		{without, "GET", "/", []string{"Accept", browser}, 404, "MCP is at /mcp"},
		{without, "GET", "/ui/", []string{"Session", "alice"}, 404, "MCP is at /mcp"},
	} {
		res := request(test.server, test.method, test.path, "", test.headers...)
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != test.want || !strings.Contains(string(body), test.text) {
			t.Errorf("%s %s %q: %d %s", test.method, test.path, test.headers, res.StatusCode, body)
		}
		if strings.HasPrefix(test.path, "/ui/") && res.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: another origin may read it", test.path)
		}
	}
	res := request(with, "GET", "/ui/", "", "Session", "alice", "Origin", "http://localhost:3000")
	if got := res.Header.Get("Access-Control-Allow-Origin"); got != "" {
		t.Errorf("%s may read a page", got)
	}
}

// TestPlainPreviews shows when pages of sandboxes on the server's host name may run
// code: not where people type tokens.
func TestPlainPreviews(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Options)
		want   bool
	}{
		"no dashboard":                 {func(o *Options) { o.PreviewDomain = "localhost" }, false},
		"a dashboard":                  {func(o *Options) { o.Dashboard, o.PreviewDomain = pages{}, "localhost" }, true},
		"a dashboard without tokens":   {func(o *Options) { o.Dashboard = pages{} }, false},
		"a sign-in page":               {func(o *Options) { o.SignIn = noSignIn{} }, true},
		"both, without a domain":       {func(o *Options) { o.Dashboard, o.SignIn = pages{}, noSignIn{} }, true},
		"neither and without a domain": {nil, false},
	} {
		if got := newServer(t, test.change).plainPreviews(); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

type noSignIn struct{}

func (noSignIn) Handlers(func(*http.Request) string) map[string]http.Handler { return nil }
