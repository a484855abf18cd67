package app

import (
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestNoSecretInRecords runs programs whose code, environment, input, output and files have
// markers, and asks for a header rule with one, which is refused. The audit log, the metrics, the exported
// metrics and traces, and the log of the server have no marker and no token.
func TestNoSecretInRecords(t *testing.T) {
	const marker = "hush-9f3a"
	exported, log := &lockedBuilder{}, &lockedBuilder{}
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.WriteString(exported, r.URL.Path+"\n")
		io.Copy(exported, r.Body)
	}))
	defer collector.Close()
	var token, operator string
	dir := t.TempDir()
	t.Run("server", func(t *testing.T) {
		sys, url := serveHTTP(t, func(o *Options) {
			o.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			o.Metrics = true
			o.Config.Audit.Enabled, o.Config.Audit.Dir = true, dir
			o.Getenv = func(name string) string {
				return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": collector.URL}[name]
			}
			tokens, err := OpenTokens(t.Context(), o.Config)
			if err != nil {
				t.Fatal(err)
			}
			defer tokens.Close()
			for name, text := range map[string]*string{"alice": &token, "root": &operator} {
				if *text, _, err = tokens.Create(t.Context(), name, []string{"run", "files", "admin", "operate"}); err != nil {
					t.Fatal(err)
				}
			}
		})
		c := caller{t, url, token, http.DefaultClient}
		var run struct {
			SandboxID string `json:"sandbox_id"`
			Stdout    string
		}
		answer := c.tool("run_code", map[string]any{
			"language": "sh", "stateless": true, "code": "echo " + marker + "-output; echo " + marker + "-error >&2",
			"env": map[string]any{"KEY": marker + "-env"},
		})
		c.result(answer, &run)
		if !strings.Contains(run.Stdout, marker+"-output") {
			t.Fatalf("the program did not run: %s", answer)
		}
		for _, call := range []struct {
			tool string
			args map[string]any
		}{
			{"run_command", map[string]any{"command": "cat; exit 3 # " + marker, "stdin": marker + "-stdin"}},
			{"run_command", map[string]any{"command": "no-such-program " + marker}},
			{"write_file", map[string]any{"path": "f", "content": marker + "-content"}},
			{"read_file", map[string]any{"path": "f"}},
			{"stop_sandbox", map[string]any{}},
		} {
			call.args["sandbox_id"] = run.SandboxID
			c.tool(call.tool, call.args)
		}
		rule, err := sandbox.NewHeaderRule("api.example.com", "X-Key", marker+"-header-rule")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sys.Engine.Create(t.Context(), "token:alice", sandbox.CreateRequest{Network: sandbox.NetworkInternet, HeaderRules: []sandbox.Secret{rule}}); err != nil {
			t.Logf("with a header rule: %v", err) // also the refusal must not have its value
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+operator)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("metrics: status %d, %v", res.StatusCode, err)
		}
		checkMarkers(t, "the metrics", string(text), "glovebox_tool_calls_total", marker, token)
	}) // the end of the server exports what is left

	audit := &strings.Builder{}
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(name)
		audit.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	checkMarkers(t, "the audit log", audit.String(), `"token:alice"`, marker, token)
	checkMarkers(t, "the log", log.String(), "tool=run_code", marker, token)
	checkMarkers(t, "the exported traces", exported.String(), "/v1/traces", marker, token)
	checkMarkers(t, "the exported metrics", exported.String(), "glovebox_tool_calls", marker, token)
}

// checkMarkers checks that a text has the words that show its use, and no marker.
func checkMarkers(t *testing.T, what, text, has string, markers ...string) {
	t.Helper()
	if !strings.Contains(text, has) {
		t.Errorf("%s has no %s:\n%.2000s", what, has, text)
	}
	for _, m := range markers {
		if i := strings.Index(text, m); i >= 0 {
			t.Errorf("%s has the marker %s: %.300s", what, m, text[max(0, i-200):])
		}
	}
}
