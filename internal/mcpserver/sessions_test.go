package mcpserver

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/transport"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestOthersDoNotExist walks every tool and resource as another principal.
func TestOthersDoNotExist(t *testing.T) {
	s, e := newTestServer(t, nil)
	url := serveHTTP(t, s)
	alice, mallory := connectHTTP(t, url, "alice", nil), connectHTTP(t, url, "mallory", nil)
	r := run(t, alice, "out secret\nread", args{"wait_seconds": 0})
	callTool(t, alice, "write_file", args{"sandbox_id": r.SandboxID, "path": "/data/f", "content": "secret"})

	calls := map[string]args{
		"run_code":         {"code": "out 1", "sandbox_id": r.SandboxID},
		"run_command":      {"command": "out 1", "sandbox_id": r.SandboxID},
		"get_run":          {"run_id": r.RunID, "stream": "stdout"},
		"stop_run":         {"run_id": r.RunID},
		"send_input":       {"run_id": r.RunID, "text": "x\n"},
		"get_sandbox":      {"sandbox_id": r.SandboxID},
		"stop_sandbox":     {"sandbox_id": r.SandboxID},
		"set_network":      {"sandbox_id": r.SandboxID, "network": "pypi.org"},
		"write_file":       {"sandbox_id": r.SandboxID, "path": "/data/f", "content": "x"},
		"read_file":        {"sandbox_id": r.SandboxID, "path": "/data/f"},
		"list_files":       {"sandbox_id": r.SandboxID},
		"edit_file":        {"sandbox_id": r.SandboxID, "path": "/data/f", "old_string": "secret", "new_string": "x"},
		"search_files":     {"sandbox_id": r.SandboxID, "pattern": "secret"},
		"get_changes":      {"sandbox_id": r.SandboxID},
		"snapshot":         {"action": "take", "sandbox_id": r.SandboxID},
		"install_packages": {"sandbox_id": r.SandboxID, "packages": []string{"x"}},
		"list_languages":   {"sandbox_id": r.SandboxID},
		"create_sandbox":   nil, // names nothing
		"list_workspaces":  {"workspace": "of alice"},
		"delete_workspace": {"workspace": "of alice"},
		"list_sandboxes":   nil,
	}
	for _, tool := range s.tools() {
		a, ok := calls[tool.name]
		if !ok {
			t.Errorf("%s is not tried as another principal", tool.name)
			continue
		}
		if a == nil {
			continue
		}
		res := callTool(t, mallory, tool.name, a)
		if !res.IsError || !strings.Contains(text(res), "there is no ") || strings.Contains(text(res), "secret") {
			t.Errorf("%s for another principal: isError %v, %q", tool.name, res.IsError, text(res))
		}
	}
	if got := text(callTool(t, mallory, "list_sandboxes", nil)); strings.Contains(got, r.SandboxID) {
		t.Errorf("list_sandboxes shows another's: %s", got)
	}
	for _, uri := range []string{"run://" + r.RunID + "/output", "sandbox://" + r.SandboxID + "/files/data/f"} {
		if _, err := alice.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri}); err != nil {
			t.Errorf("%s for its owner: %v", uri, err)
		}
		if _, err := mallory.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri}); err == nil || !strings.Contains(err.Error(), "not found") {
			t.Errorf("%s for another principal: %v", uri, err)
		}
	}
	session := openSession(t, url, "mallory")
	sub := post(t, url+transport.StreamablePath, "mallory", `{"jsonrpc":"2.0","id":5,"method":"resources/subscribe","params":{"uri":"run://`+r.RunID+`/output"}}`, sessionHeader, session)
	if b, err := io.ReadAll(sub.Body); err != nil || !strings.Contains(string(b), "not found") {
		t.Errorf("a subscription by another principal: %s, %v", b, err)
	}
	for name, value := range map[string]string{"id": "", "path": "data/"} {
		res, err := mallory.Complete(t.Context(), &mcp.CompleteParams{
			Ref:      &mcp.CompleteReference{Type: "ref/resource", URI: fileTemplate},
			Argument: mcp.CompleteParamsArgument{Name: name, Value: value},
			Context:  &mcp.CompleteContext{Arguments: map[string]string{"id": r.SandboxID}},
		})
		if err != nil || len(res.Completion.Values) != 0 {
			t.Errorf("completion of %s for another principal: %v, %v", name, res, err)
		}
	}
	if sb, err := e.Get(t.Context(), "alice", r.SandboxID); err != nil || sb.State != sandbox.Running {
		t.Errorf("the sandbox is %+v, %v", sb, err)
	}
}

// TestSessionsAreBound uses the sessions of one identity as another.
func TestSessionsAreBound(t *testing.T) {
	s, _ := newTestServer(t, nil)
	url := serveHTTP(t, s)
	id := openSession(t, url, "alice/run")
	list := `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
	if res := post(t, url+transport.StreamablePath, "alice/run", list, sessionHeader, id); res.StatusCode != 200 {
		t.Errorf("its owner: %d", res.StatusCode)
	}
	for _, token := range []string{"mallory/run", "alice/run,files", "alice"} {
		if res := post(t, url+transport.StreamablePath, token, list, sessionHeader, id); res.StatusCode != 403 {
			t.Errorf("%s: %d, want 403", token, res.StatusCode)
		}
		for _, method := range []string{"GET", "DELETE"} {
			r, err := http.NewRequestWithContext(t.Context(), method, url+transport.StreamablePath, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Accept", "text/event-stream")
			r.Header.Set("Authorization", "Bearer "+token)
			r.Header.Set(sessionHeader, id)
			res, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != 403 {
				t.Errorf("%s by %s: %d, want 403", method, token, res.StatusCode)
			}
		}
	}

	endpoint := openSSE(t.Context(), t, url, "alice")
	if res := post(t, url+endpoint, "mallory", initialize); res.StatusCode != 404 {
		t.Errorf("an SSE session by another: %d, want 404", res.StatusCode)
	}
	if res := post(t, url+endpoint, "alice", initialize); res.StatusCode != 202 {
		t.Errorf("an SSE session by its owner: %d, want 202", res.StatusCode)
	}
}

// openSSE opens a session of the older transport for as long as ctx, and
// returns where to post to.
func openSSE(ctx context.Context, t testing.TB, url, token string) (endpoint string) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, "GET", url+transport.SSEPath, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			return data
		}
	}
	t.Fatalf("GET %s: %d, and no endpoint", transport.SSEPath, res.StatusCode)
	return ""
}

// TestMaxSessions has a principal leak sessions: its oldest idle ones make room.
// One session that is in use stays.
func TestMaxSessions(t *testing.T) {
	s, e := newTestServer(t, func(o *Options) { o.MaxSessions = 2 })
	url := serveHTTP(t, s)
	ping := func(session string) int {
		return post(t, url+transport.StreamablePath, "alice", `{"jsonrpc":"2.0","id":2,"method":"ping"}`, sessionHeader, session).StatusCode
	}
	used := openSession(t, url, "alice")
	call := make(chan int, 1)
	go func() {
		res := post(t, url+transport.StreamablePath, "alice",
			`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"run_code","arguments":{"code":"sleep 1h"}}}`, sessionHeader, used)
		io.Copy(io.Discard, res.Body)
		call <- res.StatusCode
	}()
	eventually(t, "the call runs", func() bool { e.mu.Lock(); defer e.mu.Unlock(); return len(e.runs) == 1 })
	first := openSession(t, url, "alice")
	for range 5 {
		next := openSession(t, url, "alice")
		if got := ping(first); got != 404 {
			t.Errorf("the idle session: %d, want 404 for the client to open another", got)
		}
		first = next
	}
	if got := ping(used); got != 200 {
		t.Errorf("the session that is in use: %d", got)
	}
	body, headers := modernCall("list_sandboxes", "{}")
	if res := post(t, url+transport.StreamablePath, "alice", body, headers...); res.StatusCode != 200 {
		t.Errorf("a call that needs no session: %d", res.StatusCode)
	}
	r, err := http.NewRequestWithContext(t.Context(), "DELETE", url+transport.StreamablePath, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer alice")
	r.Header.Set(sessionHeader, used)
	del, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	del.Body.Close()
	<-call
	eventually(t, "the place of the session that its client ended is free", func() bool { return s.shares.Sessions.Stats().Used == 1 })
}

func TestMaxListening(t *testing.T) {
	s, _ := newTestServer(t, func(o *Options) { o.MaxSessions = 1 })
	url := serveHTTP(t, s)
	listen := `{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":[]},` + modernMeta + `}}`
	run := run(t, connectHTTP(t, url, "alice", nil), "read", args{"wait_seconds": 0})
	listen = strings.Replace(listen, "[]", `["run://`+run.RunID+`/output"]`, 1)
	headers := []string{versionHeader, firstModern, "Mcp-Method", "subscriptions/listen"}
	first := post(t, url+transport.StreamablePath, "alice", listen, headers...)
	if first.StatusCode != 200 {
		t.Fatalf("the first stream: %d", first.StatusCode)
	}
	second := post(t, url+transport.StreamablePath, "alice", listen, headers...)
	if id, _, _ := wireError(t, second); second.StatusCode != 503 || id != `"l"` {
		t.Errorf("the second stream: %d, id %s; want 503", second.StatusCode, id)
	}
	// A shutdown ends the stream.
	if err := s.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if _, err := io.ReadAll(first.Body); err != nil {
		t.Errorf("the stream ended with %v", err)
	}
}

func TestSessionTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newTestServer(t, func(o *Options) { o.SessionTimeout = time.Minute })
		ask := func(body string, headers ...string) *http.Response {
			r := httptest.NewRequest("POST", transport.StreamablePath, strings.NewReader(body))
			r = r.WithContext(auth.NewContext(t.Context(), auth.Local()))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Accept", "application/json, text/event-stream")
			for i := 0; i < len(headers); i += 2 {
				r.Header.Set(headers[i], headers[i+1])
			}
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, r)
			return w.Result()
		}
		id := ask(initialize).Header.Get(sessionHeader)
		ask(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, sessionHeader, id)
		ping := func() int {
			return ask(`{"jsonrpc":"2.0","id":2,"method":"ping"}`, sessionHeader, id).StatusCode
		}
		time.Sleep(50 * time.Second)
		if got := ping(); got != 200 {
			t.Fatalf("after 50 s: %d", got)
		}
		time.Sleep(50 * time.Second)
		if got := ping(); got != 200 {
			t.Errorf("50 s after a request: %d", got)
		}
		time.Sleep(61 * time.Second)
		synctest.Wait()
		if got := ping(); got != 404 {
			t.Errorf("61 s after the last request: %d, want 404", got)
		}
		if n := s.shares.Sessions.Stats().Used; n != 0 {
			t.Errorf("%d sessions are open", n)
		}
	})
}
