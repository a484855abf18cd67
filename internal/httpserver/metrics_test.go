package httpserver

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/metrics"
)

// runners is a Verifier of tokens that may run, and of one that may all.
type runners struct{ tokens }

func (r runners) Verify(ctx context.Context, token string) (auth.Identity, error) {
	id, err := r.tokens.Verify(ctx, token)
	if token != "good-admin" {
		id.Scopes = []auth.Scope{auth.ScopeRun, auth.ScopeFiles}
	}
	return id, err
}

// TestMetrics is about who may read them.
func TestMetrics(t *testing.T) {
	s := newServer(t, func(o *Options) {
		o.Auth, o.Metrics, o.ServeMetrics = runners{}, metrics.New("v1", "fake"), true
	})
	for _, tt := range []struct {
		name    string
		method  string
		headers []string
		status  int
	}{
		{"nobody", "GET", nil, 401},
		{"a wrong token", "GET", []string{"Authorization", "Bearer bad"}, 401},
		{"who may run", "GET", []string{"Authorization", good}, 403},
		{"who may manage", "GET", []string{"Authorization", "Bearer good-admin"}, 200},
		{"another host", "GET", []string{"Authorization", "Bearer good-admin", "Host", "evil.example"}, 403},
		{"another origin", "GET", []string{"Authorization", "Bearer good-admin", "Origin", "https://evil.example"}, 403},
		{"a write", "POST", []string{"Authorization", "Bearer good-admin"}, 404},
	} {
		res := request(s, tt.method, "/metrics", "", tt.headers...)
		if res.StatusCode != tt.status {
			t.Errorf("%s: status %d, want %d", tt.name, res.StatusCode, tt.status)
		}
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		if shows := strings.Contains(string(body), "glovebox_"); shows != (tt.status == 200) {
			t.Errorf("%s: %s", tt.name, body)
		}
	}
	for _, change := range []func(*Options){nil, func(o *Options) { o.Metrics = metrics.New("v1", "fake") }} {
		if res := request(newServer(t, change), "GET", "/metrics", "", "Authorization", good); res.StatusCode != 404 {
			t.Errorf("status %d where they are not served", res.StatusCode)
		}
	}
}

// TestRequestsCounted counts requests by paths of the server, whatever a client
// asks for.
func TestRequestsCounted(t *testing.T) {
	set := metrics.New("v1", "fake")
	s := newServer(t, func(o *Options) { o.Metrics, o.ServeMetrics = set, true })
	for i := range 50 {
		request(s, "GET", fmt.Sprintf("/%d/x", i), "")
		request(s, "POST", fmt.Sprintf("/mcp/%d?q=%d", i, i), "x", "Authorization", good)
	}
	request(s, "GET", "/healthz", "")
	request(s, "POST", "/mcp", "x")
	res := request(s, "GET", "/metrics", "", "Authorization", good)
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`glovebox_http_requests_total{code="404",method="GET",path="other"} 50`,
		`glovebox_http_requests_total{code="200",method="POST",path="/mcp"} 50`,
		`glovebox_http_requests_total{code="401",method="POST",path="/mcp"} 1`,
		`glovebox_http_requests_total{code="200",method="GET",path="/healthz"} 1`,
		`glovebox_http_request_seconds_count{path="/mcp"} 51`,
	} {
		if !strings.Contains(string(body), line+"\n") {
			t.Errorf("no line %s in\n%s", line, body)
		}
	}
	if n := strings.Count(string(body), "\nglovebox_http_requests_total{"); n != 4 {
		t.Errorf("%d series", n)
	}
}
