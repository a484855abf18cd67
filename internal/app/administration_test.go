package app

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestAdministration makes, rotates and revokes a token over HTTP, and changes groups and
// limits. The audit log names the administrator, and has no token.
func TestAdministration(t *testing.T) {
	var admin, operator string
	sys, base := serveHTTP(t, func(o *Options) {
		o.Config.Audit.Enabled = true
		all, err := OpenTokens(t.Context(), o.Config)
		if err != nil {
			t.Fatal(err)
		}
		defer all.Close()
		if admin, _, err = all.Make(t.Context(), TokenSpec{Name: "root", Scopes: []auth.Scope{auth.ScopeAdmin}}); err != nil {
			t.Fatal(err)
		}
		if operator, _, err = all.Make(t.Context(), TokenSpec{Name: "eye", Scopes: []auth.Scope{auth.ScopeOperate}}); err != nil {
			t.Fatal(err)
		}
	})
	waitServing(t, base)
	do := func(token, method, path, body string, want int, into any) http.Header {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != want {
			t.Fatalf("%s %s: %d %s, %v; want %d", method, path, res.StatusCode, text, err, want)
		}
		if into != nil {
			if err := json.Unmarshal(text, into); err != nil {
				t.Fatalf("%s %s: %s: %v", method, path, text, err)
			}
		}
		return res.Header
	}
	type token struct {
		ID, Name, Role, Token, Description string
		Principal                          sandbox.Principal
		TokenID                            string `json:"token_id"`
	}
	var made, rotated token
	do(admin, "POST", "/api/tokens", `{"name":"ci","role":"member","description":"build","expires_seconds":3600}`, 201, &made)
	if !strings.HasPrefix(made.Token, "gbx_") || made.Role != "member" || made.Principal != "token:ci" || made.Description != "build" {
		t.Errorf("made %+v", made)
	}
	do(admin, "POST", "/api/tokens/ci/rotate", `{"grace_seconds":0}`, 200, &rotated)
	if rotated.TokenID != made.TokenID || rotated.Token == made.Token {
		t.Errorf("rotated %+v", rotated)
	}
	do(made.Token, "GET", "/api/usage", "", 401, nil)
	do(rotated.Token, "GET", "/api/usage", "", 200, nil)

	do(admin, "POST", "/api/groups/team%2Fa/members", `{"principals":["token:ci","oidc:https://x#ada"]}`, 204, nil)
	do(admin, "DELETE", "/api/groups/team%2Fa/members?principal="+url.QueryEscape("oidc:https://x#ada"), "", 204, nil)
	do(admin, "PUT", "/api/limits", `{"group":"team/a","limits":{"sandboxes":0,"cpu-time-per-day":5000}}`, 204, nil)
	do(admin, "PUT", "/api/limits", `{"principal":"*","limits":{"sandboxes":9}}`, 204, nil)
	do(admin, "DELETE", "/api/limits?group=team/a&limit=cpu-time-per-day", "", 204, nil)
	var groups, limits map[string]any
	do(operator, "GET", "/api/groups", "", 200, &groups)
	do(operator, "GET", "/api/limits", "", 200, &limits)
	want := []any{
		map[string]any{"groups": []any{map[string]any{"group": "team/a", "members": []any{"token:ci"}}}},
		map[string]any{"limits": []any{map[string]any{"principal": "*", "limit": "sandboxes", "value": 9.0}, map[string]any{"group": "team/a", "limit": "sandboxes", "value": 0.0}}},
	}
	if diff := cmp.Diff(want, []any{groups, limits}); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	// The limit holds at once.
	if _, err := sys.Engine.Create(t.Context(), "token:ci", sandbox.CreateRequest{}); sandbox.KindOf(err) != sandbox.Exhausted {
		t.Errorf("a sandbox at the limit: %v", err)
	}

	// Errors are problems.
	for _, tt := range []struct {
		method, path, body string
		status             int
		kind, argument     string
	}{
		{"POST", "/api/tokens", `{"name":"a b"}`, 400, "invalid", "name"},
		{"POST", "/api/tokens", `{"name":"ci"}`, 409, "conflict", "name"},
		{"POST", "/api/tokens", `{"name":"x","role":"boss"}`, 400, "invalid", "role"},
		{"POST", "/api/tokens", `{"nam":"x"}`, 400, "invalid", ""},
		{"POST", "/api/tokens/none/rotate", `{}`, 404, "not_found", ""},
		{"DELETE", "/api/tokens/none", "", 404, "not_found", ""},
		{"DELETE", "/api/groups/none", "", 404, "not_found", ""},
		{"DELETE", "/api/groups/team%2Fa/members", "", 400, "invalid", "principal"},
		{"PUT", "/api/limits", `{"principal":"x","limits":{"size":1}}`, 400, "invalid", "limits"},
		{"PUT", "/api/limits", `{"limits":{"sandboxes":1}}`, 400, "invalid", "principal"},
		{"GET", "/api/runs?verdict=fine", "", 400, "invalid", "verdict"},
		{"GET", "/api/runs?limit=5000", "", 400, "invalid", "limit"},
		{"GET", "/api/usage?by=year", "", 400, "invalid", "by"},
	} {
		var p struct {
			Status         int
			Title, Detail  string
			Kind, Argument string
			Error          struct{ Kind, Message string }
		}
		h := do(admin, tt.method, tt.path, tt.body, tt.status, &p)
		if h.Get("Content-Type") != "application/problem+json" || p.Kind != tt.kind || p.Argument != tt.argument || p.Status != tt.status ||
			p.Title == "" || p.Detail == "" || p.Error.Kind != tt.kind || p.Error.Message != p.Detail {
			t.Errorf("%s %s: %s %+v", tt.method, tt.path, h.Get("Content-Type"), p)
		}
	}
	do(admin, "DELETE", "/api/groups/team%2Fa", "", 204, nil)
	do(admin, "DELETE", "/api/tokens/"+made.TokenID, "", 204, nil)
	do(rotated.Token, "GET", "/api/usage", "", 401, nil)

	log := readAll(t, AuditDir(sys.Config()))
	for _, action := range []string{"token.create", "token.rotate", "token.revoke", "group.add", "group.remove", "limit.set", "limit.remove"} {
		if !strings.Contains(log, `"action":"`+action+`","principal":"token:root"`) {
			t.Errorf("the audit log has no %s of the administrator:\n%s", action, log)
		}
	}
	if strings.Contains(log, "gbx_") {
		t.Error("the audit log has a token")
	}
}

// readAll returns the contents of all files below dir.
func readAll(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
