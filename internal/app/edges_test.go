package app

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
	"github.com/glovebox-dev/glovebox/internal/workspace"
)

// TestOldFileLinks has a client keep the links to a workspace that was deleted,
// and read the next one of that name by them.
func TestOldFileLinks(t *testing.T) {
	w := newFileWorld(t)
	links := []string{w.file("hello.txt"), w.signed(t, "GET", "hello.txt", time.Hour)}
	for _, link := range links {
		if res, text := w.do(t, "GET", link, nil); res.StatusCode != 200 || text != "hello, world" {
			t.Fatalf("GET %s: %d %q", link, res.StatusCode, text)
		}
	}
	e := w.sys.Engine
	if err := e.DeleteWorkspace(t.Context(), w.principal, "w"); err != nil {
		t.Fatal(err)
	}
	if err := e.ImportWorkspace(t.Context(), w.principal, "w", bytes.NewReader(tarOf(t, map[string]string{"hello.txt": "second secret"}))); err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if res, text := w.do(t, "GET", link, nil); res.StatusCode != 404 || strings.Contains(text, "second") {
			t.Errorf("GET %s of the workspace before: %d %q", link, res.StatusCode, text)
		}
	}
}

// TestWorkspaceFromBefore has a state directory of the version in which the ID of
// a workspace was made of its name: the workspace keeps its ID and its files.
func TestWorkspaceFromBefore(t *testing.T) {
	const who = sandbox.Principal("token:alice")
	id := workspace.ID(strings.Repeat("0123456789abcdef", 4))
	sys, url := serveHTTP(t, func(o *Options) {
		db, err := store.Open(t.Context(), store.Options{Dir: o.Config.StateDir})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if err := db.PutToken(t.Context(), store.Token{ID: sandbox.NewTokenID(), Name: "alice", Principal: who}); err != nil {
			t.Fatal(err)
		}
		rec := store.Workspace{ID: string(id), Handle: id.Handle(), Principal: who}
		rec.Name, rec.Used = "w", time.Now()
		err = db.UseWorkspace(t.Context(), rec, 1, func() error {
			return os.MkdirAll(filepath.Join(o.Config.StateDir, "workspaces", string(id)), 0o755)
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(o.Config.StateDir, "workspaces", string(id), "old"), []byte("kept"), 0o644); err != nil {
			t.Fatal(err)
		}
	})
	if err := sys.Engine.ImportWorkspace(t.Context(), who, "w", bytes.NewReader(tarOf(t, map[string]string{"new": "added"}))); err != nil {
		t.Fatal(err)
	}
	if got, _, err := sys.Engine.WorkspaceOf(t.Context(), who, "w"); err != nil || got != string(id) {
		t.Errorf("the workspace has the ID %s, %v; want %s", got, err, id)
	}
	for name, want := range map[string]string{"old": "kept", "new": "added"} {
		res, err := http.Get(url + "/files/" + string(id) + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || string(text) != want {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}

// TestFileBecameDirectory reads files below what is none, as after a race of the
// sandbox with the server.
func TestFileBecameDirectory(t *testing.T) {
	w := newFileWorld(t)
	res, text := w.do(t, "GET", w.file("hello.txt/below"), nil)
	if res.StatusCode != 404 || strings.Contains(w.logged.String(), "level=ERROR") {
		t.Errorf("GET: %d %s; the log:\n%s", res.StatusCode, text, w.logged.String())
	}
}

// TestRevokedTokenEndsStreams has another process revoke a token: its stream ends,
// and its session is gone. Another token's stay.
func TestRevokedTokenEndsStreams(t *testing.T) {
	var tokens []string
	sys, url := serveHTTP(t, func(o *Options) {
		all, err := OpenTokens(t.Context(), o.Config)
		if err != nil {
			t.Fatal(err)
		}
		defer all.Close()
		for _, name := range []string{"alice", "bob"} {
			token, _, err := all.Create(t.Context(), name, nil)
			if err != nil {
				t.Fatal(err)
			}
			tokens = append(tokens, token)
		}
	})
	do := func(token, method, body string, headers ...string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, url+"/mcp", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		headers = append([]string{"Authorization", "Bearer " + token, "Content-Type", "application/json", "Accept", "application/json, text/event-stream"}, headers...)
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { res.Body.Close() })
		return res
	}
	var sessions []string
	var streams []*http.Response
	for _, token := range tokens {
		res := do(token, "POST", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
		io.Copy(io.Discard, res.Body)
		id := res.Header.Get("Mcp-Session-Id")
		do(token, "POST", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, "Mcp-Session-Id", id)
		sessions = append(sessions, id)
		streams = append(streams, do(token, "GET", "", "Mcp-Session-Id", id))
	}
	other, err := OpenTokens(t.Context(), sys.Config())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.Revoke(t.Context(), "alice"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, streams[0].Body); err != nil { // it ends, or the test does not
		t.Logf("the stream ended with %v", err)
	}
	// A token of the same principal finds the session gone.
	again, _, err := other.Create(t.Context(), "alice", nil)
	if err != nil {
		t.Fatal(err)
	}
	const ping = `{"jsonrpc":"2.0","id":2,"method":"ping"}`
	for { // the session ends beside its stream
		if res := do(again, "POST", ping, "Mcp-Session-Id", sessions[0]); res.StatusCode == 404 {
			break
		}
	}
	if res := do(tokens[1], "POST", ping, "Mcp-Session-Id", sessions[1]); res.StatusCode != 200 {
		t.Errorf("another's session: %d", res.StatusCode)
	}
}
