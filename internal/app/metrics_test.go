package app

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// scrape reads the metrics at an address with a token.
func scrape(t *testing.T, url, token string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// TestMetrics reads what a server with a pool counted of a run.
func TestMetrics(t *testing.T) {
	s, url := serveHTTP(t, func(o *Options) { o.Metrics, o.Pool, o.Version = true, true, "v7" })
	admin, _, err := s.auth.Create(t.Context(), "prometheus", auth.ScopeAdmin)
	if err != nil {
		t.Fatal(err)
	}
	user, _, err := s.auth.Create(t.Context(), "somebody", auth.ScopeRun, auth.ScopeFiles)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.WaitWarm(t.Context()); err != nil {
		t.Fatal(err)
	}
	run, err := s.Engine.Start(t.Context(), sandbox.Local, sandbox.RunRequest{Argv: []string{"echo", "hello"}, New: sandbox.CreateRequest{Workspace: "w"}})
	if err == nil {
		_, err = s.Engine.Wait(t.Context(), sandbox.Local, run.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	run, err = s.Engine.Start(t.Context(), sandbox.Local, sandbox.RunRequest{Argv: []string{"sleep", "100"}})
	if err != nil {
		t.Fatal(err)
	}
	status, text := scrape(t, url, admin)
	for _, line := range []string{
		`glovebox_build_info{version="v7"} 1`,
		`glovebox_sandboxes{driver="fake",state="running"} 2`,
		`glovebox_sandboxes_max 64`,
		`glovebox_runs_running 1`,
		`glovebox_runs_total{language="none",verdict="ok"} 1`,
		`glovebox_run_output_bytes_total{stream="stdout"} 6`,
		`glovebox_workspaces 1`,
		`glovebox_pool_claims_total{result="hit"} 1`,
		`glovebox_pool_claims_total{result="miss"} 0`,
		`glovebox_pool_claims_total{result="unpooled"} 1`,
		`glovebox_pool_claim_seconds_count 1`,
		`glovebox_queue_length 0`,
	} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("status %d, no line %s in\n%s", status, line, text)
		}
	}
	for _, secret := range []string{run.ID, run.SandboxID, admin, user, string(sandbox.Local), "somebody"} {
		if strings.Contains(text, `"`+secret) {
			t.Errorf("it names %s", secret)
		}
	}
	if status, text := scrape(t, url, user); status != http.StatusForbidden || strings.Contains(text, "glovebox_") {
		t.Errorf("who may only run: %d, %s", status, text)
	}
}

// TestMetricsElsewhere has them at an address of their own only.
func TestMetricsElsewhere(t *testing.T) {
	o := testOptions(t, t.TempDir())
	o.Metrics = true
	o.Config.Server.Listen, o.Config.Server.MetricsListen = "127.0.0.1:0", "127.0.0.1:0"
	s := mustOpen(t, o)
	admin, _, err := s.auth.Create(t.Context(), "prometheus", auth.ScopeAdmin)
	if err != nil {
		t.Fatal(err)
	}
	ctx, done := serveContext(t)
	lns, err := s.Listen(ctx)
	if err != nil {
		t.Fatal(err)
	}
	go func() { done <- s.ServeHTTP(ctx, lns, func() error { return nil }) }()
	if status, _ := scrape(t, "http://"+lns.MCP.Addr().String(), admin); status != http.StatusNotFound {
		t.Errorf("status %d at the first address", status)
	}
	url := "http://" + lns.Metrics.Addr().String()
	if status, text := scrape(t, url, admin); status != http.StatusOK || !strings.Contains(text, "glovebox_sandboxes{") {
		t.Errorf("status %d: %s", status, text)
	}
	if status, _ := scrape(t, url, "wrong"); status != http.StatusUnauthorized {
		t.Errorf("status %d for a wrong token", status)
	}
	if status, _, body := ask(t, url, admin); status != http.StatusNotFound {
		t.Errorf("MCP at their address: %d, %s", status, body)
	}
}
