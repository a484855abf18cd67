package mcpserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// post sends a message as a client does; headers are name, value pairs.
func post(t testing.TB, url, token, body string, headers ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}

const (
	initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
)

// modernCall is a call of a tool as 2026-07-28 has it, and its headers.
func modernCall(tool, arguments string) (body string, headers []string) {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":%q,"arguments":%s,%s}}`, tool, arguments, modernMeta),
		[]string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", tool}
}

// openSession initializes a session and returns its id.
func openSession(t testing.TB, url, token string) string {
	t.Helper()
	res := post(t, url+StreamablePath, token, initialize)
	id := res.Header.Get(sessionHeader)
	if res.StatusCode != 200 || id == "" {
		b, _ := io.ReadAll(res.Body)
		t.Fatalf("initialize: %d, session %q: %s", res.StatusCode, id, b)
	}
	io.Copy(io.Discard, res.Body)
	post(t, url+StreamablePath, token, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, sessionHeader, id)
	return id
}

// wireError reads a JSON-RPC error.
func wireError(t testing.TB, res *http.Response) (id string, code int64, text string) {
	t.Helper()
	var m struct {
		ID    json.RawMessage
		Error struct {
			Code    int64
			Message string
		}
	}
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &m); err != nil || m.Error.Code == 0 {
		t.Fatalf("%d %s %q is no JSON-RPC error: %v", res.StatusCode, res.Header.Get("Content-Type"), b, err)
	}
	return string(m.ID), m.Error.Code, m.Error.Message
}

func TestBadMessages(t *testing.T) {
	s, _ := newTestServer(t, func(o *Options) { o.MaxMessageBytes = 10_000 })
	url := serveHTTP(t, s)
	session := openSession(t, url, "alice")
	large := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_code","arguments":{"code":"` + strings.Repeat("x", 10_000) + `"}}}`
	unknown, unknownHeaders := modernCall("run_cod", "{}")
	for _, tt := range []struct {
		name, body string
		headers    []string
		status     int
		id         string
		code       int64
	}{
		{"not JSON", `{"jsonrpc":`, nil, 400, "null", -32700},
		{"not JSON, in a session", `hello`, []string{sessionHeader, session}, 400, "null", -32700},
		{"empty", ``, []string{sessionHeader, session}, 400, "null", -32700},
		{"a number", `42`, []string{sessionHeader, session}, 400, "null", -32600},
		{"no message", `{"id":5}`, []string{sessionHeader, session}, 400, "5", -32600},
		{"empty batch", `[]`, []string{sessionHeader, session}, 400, "null", -32600},
		{"id of an odd type", `{"jsonrpc":"2.0","id":{"a":1},"method":"ping"}`, []string{sessionHeader, session}, 400, "null", -32600},
		{"no session", `{"jsonrpc":"2.0","id":"x","method":"tools/list"}`, []string{sessionHeader, "gone"}, 404, `"x"`, codeSessionEnd},
		{"unknown method", `{"jsonrpc":"2.0","id":3,"method":"no/such"}`, []string{sessionHeader, session}, 400, "3", -32601},
		{"unknown method, modern", `{"jsonrpc":"2.0","id":3,"method":"no/such","params":{` + modernMeta + `}}`, []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "no/such"}, 404, "3", -32601},
		{"unknown tool, modern", unknown, unknownHeaders, 400, "7", -32602},
		{"unknown version", `{"jsonrpc":"2.0","id":3,"method":"tools/list"}`, []string{sessionHeader, session, versionHeader, "1999-01-01"}, 400, "3", -32600},
		{"too large", large, []string{sessionHeader, session}, 413, "null", -32600},
		{"wrong content type", `{}`, []string{"Content-Type", "text/html"}, 415, "null", -32600},
		{"wrong accept", `{}`, []string{"Accept", "text/html"}, 400, "null", -32600},
	} {
		res := post(t, url+StreamablePath, "alice", tt.body, tt.headers...)
		if res.StatusCode != tt.status {
			t.Errorf("%s: status %d, want %d", tt.name, res.StatusCode, tt.status)
		}
		id, code, text := wireError(t, res)
		if id != tt.id || code != tt.code {
			t.Errorf("%s: id %s, code %d (%s); want %s, %d", tt.name, id, code, text, tt.id, tt.code)
		}
	}
	for _, path := range []string{"/", "/mcp/nothing", "/sse/x"} {
		if res := post(t, url+path, "alice", "{}"); res.StatusCode != 404 {
			t.Errorf("POST %s: %d, want 404", path, res.StatusCode)
		}
	}
	for _, path := range []string{StreamablePath, SSEPath} {
		if res := post(t, url+path, "", initialize); res.StatusCode != 401 || res.Header.Get("WWW-Authenticate") == "" {
			t.Errorf("POST %s as nobody: %d", path, res.StatusCode)
		}
	}
}

func TestIsModern(t *testing.T) {
	for _, tt := range []struct {
		name, method string
		body         string
		headers      []string
		want         bool
	}{
		{"meta", "POST", `{"method":"tools/list","params":{` + modernMeta + `}}`, nil, true},
		{"header", "POST", `{"method":"tools/list"}`, []string{versionHeader, "2026-07-28"}, true},
		{"later header", "POST", `{"method":"tools/list"}`, []string{versionHeader, "2027-01-01"}, true},
		{"discover", "POST", `{"method":"server/discover"}`, nil, true},
		{"initialize with meta", "POST", `{"method":"initialize","params":{` + modernMeta + `}}`, nil, true},
		{"initialize with header", "POST", initialize, []string{versionHeader, "2026-07-28"}, false},
		{"initialize", "POST", initialize, nil, false},
		{"older header", "POST", `{"method":"tools/list"}`, []string{versionHeader, "2025-11-25"}, false},
		{"in a session", "POST", `{"method":"tools/list","params":{` + modernMeta + `}}`, []string{sessionHeader, "x"}, false},
		{"plain", "POST", `{"method":"tools/list"}`, nil, false},
		{"batch", "POST", `[` + initialize + `]`, nil, false},
		{"stream", "GET", ``, []string{versionHeader, "2026-07-28"}, false},
		{"end", "DELETE", ``, nil, false},
	} {
		r := httptest.NewRequest(tt.method, "/mcp", nil)
		for i := 0; i < len(tt.headers); i += 2 {
			r.Header.Set(tt.headers[i], tt.headers[i+1])
		}
		var m message
		if tt.body != "" {
			var err error
			if m, err = peek([]byte(tt.body)); err != nil {
				t.Fatal(err)
			}
		}
		if got := isModern(r, m); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// FuzzDispatch sends any body and headers to the dispatcher: what comes back is
// an answer of the protocol, whatever was sent.
func FuzzDispatch(f *testing.F) {
	modern, _ := modernCall("run_code", `{"code":"out 1"}`)
	for _, body := range []string{"", "{", "null", "[]", "[1]", initialize, "[" + initialize + "]", modern, `{"jsonrpc":"2.0","method":"x"}`,
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"run://\u0000/output",` + modernMeta + `}}`, "{\"id\":\"\xff\"}"} {
		f.Add(body, "2026-07-28", "", "tools/call", "run_code")
		f.Add(body, "", "", "", "")
		f.Add(body, "2025-06-18", "session", "", "")
	}
	s, _ := newTestServer(f, nil)
	f.Fuzz(func(t *testing.T, body, version, session, method, name string) {
		ctx, cancel := context.WithTimeout(auth.NewContext(t.Context(), auth.Local()), time.Minute)
		defer cancel()
		r := httptest.NewRequest("POST", StreamablePath, strings.NewReader(body)).WithContext(ctx)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		for header, value := range map[string]string{versionHeader: version, sessionHeader: session, "Mcp-Method": method, "Mcp-Name": name} {
			if value != "" {
				r.Header.Set(header, value)
			}
		}
		if strings.Contains(body, "subscriptions/listen") {
			cancel() // it lasts until the client leaves
		}
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		if w.Code >= 500 && w.Code != http.StatusServiceUnavailable {
			t.Errorf("status %d: %s", w.Code, w.Body)
		}
		if w.Code >= 400 && !json.Valid(w.Body.Bytes()) {
			t.Errorf("status %d with a body that is not JSON: %q", w.Code, w.Body)
		}
	})
}

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
	sub := post(t, url+StreamablePath, "mallory", `{"jsonrpc":"2.0","id":5,"method":"resources/subscribe","params":{"uri":"run://`+r.RunID+`/output"}}`, sessionHeader, session)
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
	if res := post(t, url+StreamablePath, "alice/run", list, sessionHeader, id); res.StatusCode != 200 {
		t.Errorf("its owner: %d", res.StatusCode)
	}
	for _, token := range []string{"mallory/run", "alice/run,files", "alice"} {
		if res := post(t, url+StreamablePath, token, list, sessionHeader, id); res.StatusCode != 403 {
			t.Errorf("%s: %d, want 403", token, res.StatusCode)
		}
		for _, method := range []string{"GET", "DELETE"} {
			r, err := http.NewRequestWithContext(t.Context(), method, url+StreamablePath, nil)
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
	r, err := http.NewRequestWithContext(ctx, "GET", url+SSEPath, nil)
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
	t.Fatalf("GET %s: %d, and no endpoint", SSEPath, res.StatusCode)
	return ""
}

func TestMaxSessions(t *testing.T) {
	s, _ := newTestServer(t, func(o *Options) { o.MaxSessions = 2 })
	url := serveHTTP(t, s)
	first := openSession(t, url, "alice")
	openSSE(t.Context(), t, url, "alice")
	res := post(t, url+StreamablePath, "alice", initialize)
	if res.StatusCode != 503 || res.Header.Get("Retry-After") == "" {
		t.Errorf("the third session: %d, want 503 with Retry-After", res.StatusCode)
	}
	if id, _, _ := wireError(t, res); id != "1" {
		t.Errorf("the refusal has id %s, want 1", id)
	}
	body, headers := modernCall("list_sandboxes", "{}")
	if res := post(t, url+StreamablePath, "alice", body, headers...); res.StatusCode != 200 {
		t.Errorf("a call that needs no session: %d", res.StatusCode)
	}
	r, err := http.NewRequestWithContext(t.Context(), "DELETE", url+StreamablePath, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer alice")
	r.Header.Set(sessionHeader, first)
	del, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	del.Body.Close()
	openSession(t, url, "alice")
}

func TestMaxListening(t *testing.T) {
	s, _ := newTestServer(t, func(o *Options) { o.MaxSessions = 1 })
	url := serveHTTP(t, s)
	listen := `{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":[]},` + modernMeta + `}}`
	run := run(t, connectHTTP(t, url, "alice", nil), "read", args{"wait_seconds": 0})
	listen = strings.Replace(listen, "[]", `["run://`+run.RunID+`/output"]`, 1)
	headers := []string{versionHeader, firstModern, "Mcp-Method", "subscriptions/listen"}
	first := post(t, url+StreamablePath, "alice", listen, headers...)
	if first.StatusCode != 200 {
		t.Fatalf("the first stream: %d", first.StatusCode)
	}
	second := post(t, url+StreamablePath, "alice", listen, headers...)
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
			r := httptest.NewRequest("POST", StreamablePath, strings.NewReader(body))
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
		if n := s.openSessions(); n != 0 {
			t.Errorf("%d sessions are open", n)
		}
	})
}

// TestHangUp ends a call by ending its connection, which in the stateless era
// is how calls are cancelled.
func TestHangUp(t *testing.T) {
	s, e := newTestServer(t, nil)
	url := serveHTTP(t, s)
	hangUp := func(do func(ctx context.Context)) {
		t.Helper()
		before := e.stopped()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			do(ctx)
		}()
		running := func() bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			return len(e.runs) == before+1
		}
		eventually(t, "a run", running)
		cancel()
		<-done
		eventually(t, "the run is stopped", func() bool { return e.stopped() == before+1 })
	}
	send := func(ctx context.Context, method, target, body string, headers ...string) {
		r, err := http.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		r.Header.Set("Authorization", "Bearer alice")
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		if res, err := http.DefaultClient.Do(r); err == nil {
			io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
	}
	body, headers := modernCall("run_code", `{"code":"sleep 1h"}`)
	hangUp(func(ctx context.Context) { send(ctx, "POST", url+StreamablePath, body, headers...) })

	// An SSE session ends with its stream, and with it the session's calls.
	hangUp(func(ctx context.Context) {
		endpoint := openSSE(ctx, t, url, "alice")
		post(t, url+endpoint, "alice", initialize)
		post(t, url+endpoint, "alice", `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		post(t, url+endpoint, "alice", `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"run_code","arguments":{"code":"sleep 1h"}}}`)
		<-ctx.Done()
	})

	// A session's end ends its calls, and does not wait for them.
	hangUp(func(ctx context.Context) {
		id := openSession(t, url, "alice")
		go send(t.Context(), "POST", url+StreamablePath,
			`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"run_code","arguments":{"code":"sleep 1h"}}}`, sessionHeader, id)
		<-ctx.Done()
		send(t.Context(), "DELETE", url+StreamablePath, "", sessionHeader, id)
	})
}

// TestResume loses the connection in the middle of a call of an older version,
// which does not cancel it, and fetches the answer with another.
func TestResume(t *testing.T) {
	s, e := newTestServer(t, nil)
	url := serveHTTP(t, s)
	res := post(t, url+StreamablePath, "alice", strings.Replace(initialize, "2025-06-18", "2025-11-25", 1))
	io.Copy(io.Discard, res.Body)
	id := res.Header.Get(sessionHeader)
	session := []string{sessionHeader, id, versionHeader, "2025-11-25"}
	post(t, url+StreamablePath, "alice", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, session...)
	call := post(t, url+StreamablePath, "alice",
		`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"run_code","arguments":{"code":"sleep 300ms\nout there"}}}`, session...)
	var lastID string
	for lines := bufio.NewScanner(call.Body); lastID == "" && lines.Scan(); {
		lastID, _ = strings.CutPrefix(lines.Text(), "id: ")
		if lastID == lines.Text() {
			lastID = ""
		}
	}
	call.Body.Close()

	resume := func() []byte {
		r, err := http.NewRequestWithContext(t.Context(), "GET", url+StreamablePath, nil)
		if err != nil {
			t.Fatal(err)
		}
		for header, value := range map[string]string{"Accept": "text/event-stream", "Authorization": "Bearer alice", sessionHeader: id, versionHeader: "2025-11-25", "Last-Event-ID": lastID} {
			r.Header.Set(header, value)
		}
		again, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer again.Body.Close()
		b, err := io.ReadAll(again.Body)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	b := resume()
	// Until the server has noticed that the connection is gone, the stream is
	// still taken; clients come again.
	for deadline := time.Now().Add(10 * time.Second); bytes.Contains(b, []byte("ongoing stream")) && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
		b = resume()
	}
	if !bytes.Contains(b, []byte(`"stdout":"there\n"`)) {
		t.Errorf("the stream resumed from %q holds %s", lastID, b)
	}
	if e.stopped() != 0 {
		t.Error("the run was stopped")
	}
}

func TestManyCalls(t *testing.T) {
	s, e := newTestServer(t, nil)
	url := serveHTTP(t, s)
	clients := []*mcp.ClientSession{
		serveStdio(t, s, nil), connectHTTP(t, url, "alice", nil), connectSSE(t, url, "bob"),
	}
	var wg sync.WaitGroup
	for i := range 200 {
		cs := clients[i%len(clients)]
		wg.Go(func() {
			res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "run_code", Arguments: args{"code": fmt.Sprintf("out %d", i)}})
			if err != nil || res.IsError {
				t.Errorf("call %d: %v, %v", i, res, err)
				return
			}
			if r := structured[runResult](t, res); r.Stdout != fmt.Sprintf("%d\n", i) {
				t.Errorf("call %d gave %q", i, r.Stdout)
			}
		})
	}
	wg.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.runs) != 200 {
		t.Errorf("%d runs, want 200", len(e.runs))
	}
}

func TestShutdown(t *testing.T) {
	s, e := newTestServer(t, nil)
	url := serveHTTP(t, s)
	cs := connectHTTP(t, url, "alice", nil)
	openSSE(t.Context(), t, url, "alice")
	results := make(chan *mcp.CallToolResult, 2)
	for _, script := range []string{"sleep 200ms\nout finished", "sleep 1h"} {
		go func() {
			res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "run_code", Arguments: args{"code": script}})
			if err != nil {
				t.Errorf("%q: %v", script, err)
			}
			results <- res
		}()
	}
	eventually(t, "two runs", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.runs) == 2
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown: %v, want that it had to cancel", err)
	}
	got := map[sandbox.VerdictCode]int{}
	for range 2 {
		if res := <-results; res != nil {
			v := structured[runResult](t, res).Verdict
			got[v.Code]++
			if v.Code == sandbox.Cancelled && v.Cause != errShutdown.Error() {
				t.Errorf("the cause is %q, want that the server shuts down", v.Cause)
			}
		}
	}
	if got[sandbox.OK] != 1 || got[sandbox.Cancelled] != 1 {
		t.Errorf("verdicts %v, want one ok and one cancelled", got)
	}
	if e.stopped() != 1 {
		t.Errorf("%d runs were stopped, want 1", e.stopped())
	}
	for range s.mcp.Sessions() {
		t.Error("a session is open")
	}
	body, headers := modernCall("run_code", `{"code":"out"}`)
	b, _ := io.ReadAll(post(t, url+StreamablePath, "alice", body, headers...).Body)
	if !strings.Contains(string(b), errShutdown.Error()) {
		t.Errorf("a call after the end: %s", b)
	}
}
