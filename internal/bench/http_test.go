package bench

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestHTTPCaller checks the requests to a server, and what becomes of its answers.
func TestHTTPCaller(t *testing.T) {
	const good = `{"jsonrpc":"2.0","id":1,"result":{"structuredContent":{"sandbox_id":"sbx_1"}}}`
	run := func(ctx context.Context, c *HTTPCaller) (string, error) { return c.RunCode(ctx, "", "print(1)") }
	again := func(ctx context.Context, c *HTTPCaller) (string, error) { return c.RunCode(ctx, "sbx_1", "print(1)") }
	stop := func(ctx context.Context, c *HTTPCaller) (string, error) { return "", c.Stop(ctx, "sbx_1") }
	for _, c := range []struct {
		name, answer string
		call         func(context.Context, *HTTPCaller) (string, error)
		tool         string
		arguments    map[string]any
		id, failure  string
	}{
		{"new", good, run, "run_code", map[string]any{"code": "print(1)"}, "sbx_1", ""},
		{"same sandbox", good, again, "run_code", map[string]any{"code": "print(1)", "sandbox_id": "sbx_1"}, "sbx_1", ""},
		{"stop", good, stop, "stop_sandbox", map[string]any{"sandbox_id": "sbx_1"}, "", ""},
		{"stream", "event: message\ndata: {\"method\":\"x\"}\n\nevent: message\ndata: " + good + "\n\n", run, "run_code", map[string]any{"code": "print(1)"}, "sbx_1", ""},
		{"error of the protocol", `{"error":{"message":"no such tool"}}`, run, "run_code", map[string]any{"code": "print(1)"}, "", "run_code over HTTP: "},
		{"error of the tool", `{"result":{"isError":true}}`, stop, "stop_sandbox", map[string]any{"sandbox_id": "sbx_1"}, "", "stop_sandbox over HTTP: "},
		{"no JSON", "unauthorized", run, "run_code", map[string]any{"code": "print(1)"}, "", "run_code over HTTP: unauthorized"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var tool, token string
			var arguments map[string]any
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var request struct {
					Params struct {
						Name      string
						Arguments map[string]any
					}
				}
				if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
					t.Error(err)
				}
				tool, arguments, token = request.Params.Name, request.Params.Arguments, r.Header.Get("Authorization")
				w.Write([]byte(c.answer))
			}))
			defer server.Close()
			caller := &HTTPCaller{URL: server.URL, Token: "gbx_secret"}
			defer caller.Close()
			id, err := c.call(t.Context(), caller)
			if id != c.id || (err != nil) != (c.failure != "") {
				t.Errorf("%q, %v", id, err)
			}
			if err != nil && (!errors.Is(err, sandbox.Unavailable) || !strings.Contains(err.Error(), c.failure)) {
				t.Errorf("%v, want %s", err, c.failure)
			}
			if tool != c.tool || token != "Bearer gbx_secret" {
				t.Errorf("tool %q, token %q", tool, token)
			}
			if d := cmp.Diff(c.arguments, arguments); d != "" {
				t.Errorf("arguments (-want +got):\n%s", d)
			}
		})
	}
}
