package app

import (
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// TestRoles has a token of each role, all of one principal, do each action at each
// edge. Tokens of before have scopes and no role: they do what they did.
func TestRoles(t *testing.T) {
	tokens := map[string]string{} // by role
	const owner = sandbox.Principal("token:alice")
	sys, base := serveHTTP(t, func(o *Options) {
		o.Detached, o.Metrics = true, true
		all, err := OpenTokens(t.Context(), o.Config)
		if err != nil {
			t.Fatal(err)
		}
		defer all.Close()
		for _, role := range auth.Roles() {
			scopes, err := role.Scopes()
			if err != nil {
				t.Fatal(err)
			}
			if tokens[string(role)], _, err = all.Make(t.Context(), TokenSpec{Name: string(role), Principal: "alice", Scopes: scopes}); err != nil {
				t.Fatal(err)
			}
		}
		db, err := store.Open(t.Context(), store.Options{Dir: o.Config.StateDir})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		for name, scopes := range map[string][]string{"old": {"run", "files"}, "old-files": {"files"}, "old-admin": {"admin"}} {
			tokens[name] = auth.NewToken(sandbox.Shard{})
			old := store.Token{ID: sandbox.NewTokenID(), Name: name, Principal: owner, Hash: auth.Hash(tokens[name]), Scopes: scopes}
			if err := db.PutToken(t.Context(), old); err != nil {
				t.Fatal(err)
			}
		}
	})
	waitServing(t, base)
	box, err := sys.Engine.Create(t.Context(), owner, sandbox.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sys.StopSandboxesOf(context.Background(), []sandbox.Principal{owner}, func(string) {}); err != nil {
			t.Error(err)
		}
	})
	file := filepath.Join(t.TempDir(), "f") // the driver of tests has the files of this machine
	if err := sys.Engine.WriteFile(t.Context(), owner, box.ID, file, strings.NewReader("x"), false); err != nil {
		t.Fatal(err)
	}

	do := func(req *http.Request, client *http.Client) int {
		t.Helper()
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		io.Copy(io.Discard, res.Body)
		return res.StatusCode
	}
	request := func(method, path, body string, headers ...string) *http.Request {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		return req
	}
	// Each action reports whether the token may do it.
	tool := func(name string, arguments map[string]any) func(string) bool {
		return func(token string) bool {
			answer := caller{t, base, token, http.DefaultClient}.tool(name, arguments)
			return !strings.Contains(answer, "forbidden")
		}
	}
	web := func(method, path, body string) func(string) bool {
		return func(token string) bool {
			return do(request(method, path, body, "Authorization", "Bearer "+token, "Content-Type", "application/json"), http.DefaultClient) != 403
		}
	}
	// Sign-ins are limited, so a token has one session for all pages, except for the
	// page that ends it.
	browsers := map[string]*http.Client{}
	page := func(method, path string) func(string) bool {
		return func(token string) bool {
			ends := strings.HasSuffix(path, "/signout")
			if browser := browsers[token]; browser != nil && !ends {
				return do(request(method, path, "", "Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin", "Origin", base), browser) != 403
			}
			jar, err := cookiejar.New(nil)
			if err != nil {
				t.Fatal(err)
			}
			id, err := sys.auth.Verify(t.Context(), token)
			if err != nil {
				t.Fatal(err)
			}
			browser := &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
			for _, tok := range mustTokens(t, sys) {
				if tok.ID != id.Token {
					continue
				}
				link, err := OpenDashboard(t.Context(), sys.Config(), tok.Name)
				if sandbox.KindOf(err) == sandbox.Forbidden {
					return false
				}
				if err != nil {
					t.Fatal(err)
				}
				at, err := url.Parse(link.URL)
				if err != nil {
					t.Fatal(err)
				}
				if status := do(request("GET", at.RequestURI(), ""), browser); status != 200 {
					t.Fatalf("the link: %d", status)
				}
				if status := do(request("GET", "/ui/arrived", ""), browser); status != 303 {
					t.Fatalf("after the link: %d", status)
				}
			}
			if !ends {
				browsers[token] = browser
			}
			return do(request(method, path, "", "Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin", "Origin", base), browser) != 403
		}
	}
	const (
		all     = "admin operator member read-only old old-files old-admin"
		reads   = "admin operator member read-only old old-admin"
		files   = "admin member old old-files old-admin"
		members = "admin member old old-admin"
		runs    = members
		watch   = "admin operator old-admin"
		admins  = "admin old-admin"
	)
	in := map[string]any{"sandbox_id": box.ID}
	with := func(k string, v any) map[string]any { return map[string]any{"sandbox_id": box.ID, k: v} }
	for action, tt := range map[string]struct {
		may string
		do  func(token string) bool
	}{
		"MCP list_sandboxes":   {reads, tool("list_sandboxes", nil)},
		"MCP get_sandbox":      {reads, tool("get_sandbox", in)},
		"MCP list_files":       {all, tool("list_files", in)},
		"MCP read_file":        {all, tool("read_file", with("path", file))},
		"MCP write_file":       {files, tool("write_file", map[string]any{"sandbox_id": box.ID, "path": file + "-written", "content": "x"})},
		"MCP edit_file":        {files, tool("edit_file", map[string]any{"sandbox_id": box.ID, "path": file, "edits": []any{map[string]any{"old": "x", "new": "x"}}})},
		"MCP run_command":      {runs, tool("run_command", with("command", "true"))},
		"MCP create_sandbox":   {runs, tool("create_sandbox", nil)},
		"MCP set_network":      {runs, tool("set_network", with("allow", []string{}))},
		"MCP stop_sandbox":     {runs, tool("stop_sandbox", map[string]any{"sandbox_id": "sbx_aaaaaaaaaaaaaaaaaaaaaaaaaa"})},
		"MCP delete_workspace": {files, tool("delete_workspace", map[string]any{"workspace": "none"})},
		"HTTP GET workspaces":  {all, web("GET", "/workspaces", "")},
		"HTTP PUT workspaces":  {files, web("PUT", "/workspaces/w/archive", "")},
		"HTTP DELETE":          {files, web("DELETE", "/workspaces/none", "")},
		"HTTP usage":           {all, web("GET", "/api/usage", "")},
		"API tokens":           {watch, web("GET", "/api/tokens", "")},
		"API make token":       {admins, web("POST", "/api/tokens", `{"name":"a b"}`)},
		"API rotate token":     {admins, web("POST", "/api/tokens/none/rotate", "{}")},
		"API revoke token":     {admins, web("DELETE", "/api/tokens/none", "")},
		"API groups":           {watch, web("GET", "/api/groups", "")},
		"API add member":       {admins, web("POST", "/api/groups/g/members", "{}")},
		"API remove member":    {admins, web("DELETE", "/api/groups/g/members?principal=x", "")},
		"API remove group":     {admins, web("DELETE", "/api/groups/g", "")},
		"API limits":           {watch, web("GET", "/api/limits", "")},
		"API set limits":       {admins, web("PUT", "/api/limits", "{}")},
		"API remove limits":    {admins, web("DELETE", "/api/limits?principal=x", "")},
		"API own runs":         {reads, web("GET", "/api/runs", "")},
		"API all runs":         {watch, web("GET", "/api/runs?principal=*", "")},
		"API usage of others":  {watch, web("GET", "/api/usage?principal=token:bob", "")},
		"API document":         {all, web("GET", "/api/openapi.json", "")},
		"HTTP metrics":         {watch, web("GET", "/metrics", "")},
		"HTTP port":            {runs, web("GET", "/ports/"+box.ID+"/8080/", "")},
		"E2B GET": {members, func(token string) bool {
			return do(request("GET", "/e2b/sandboxes", "", "X-Api-Key", token), http.DefaultClient) != 403
		}},
		"E2B DELETE": {members, func(token string) bool {
			return do(request("DELETE", "/e2b/sandboxes/none", "", "X-Api-Key", token), http.DefaultClient) != 403
		}},
		"dashboard GET":      {reads, page("GET", "/ui/")},
		"dashboard file":     {strings.ReplaceAll(reads, "old-files", ""), page("GET", "/ui/sandboxes/"+box.ID+"/file?path="+url.QueryEscape(file))},
		"dashboard stop":     {runs, page("POST", "/ui/sandboxes/sbx_aaaaaaaaaaaaaaaaaaaaaaaaaa/stop")},
		"dashboard sign out": {reads, page("POST", "/ui/signout")},
		"dashboard terminal": {members, page("GET", "/ui/sandboxes/"+box.ID+"/terminal/socket?cols=80&rows=24")},
		"dashboard preview":  {members, page("GET", "/ui/sandboxes/"+box.ID+"/preview?port=8080")},
	} {
		t.Run(action, func(t *testing.T) {
			for role, token := range tokens {
				want := strings.Contains(" "+tt.may+" ", " "+role+" ")
				if got := tt.do(token); got != want {
					t.Errorf("%s: allowed %t, want %t", role, got, want)
				}
			}
		})
	}
	// tools/list offers what the token may call.
	for role, want := range map[string][2]bool{"read-only": {true, false}, "member": {true, true}, "old-files": {true, false}} {
		_, _, list := ask(t, base, tokens[role])
		if got := [2]bool{strings.Contains(list, `"read_file"`), strings.Contains(list, `"run_code"`)}; got != want {
			t.Errorf("%s is offered read_file, run_code: %v, want %v", role, got, want)
		}
	}
}

func mustTokens(t *testing.T, sys *System) []sandbox.Token {
	t.Helper()
	list, err := sys.auth.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return list
}
