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
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/transport"
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

// named gives the client of a message another name.
func named(message, client string) string {
	return strings.Replace(message, `"name":"t"`, fmt.Sprintf(`"name":%q`, client), 1)
}

// openSession initializes a session and returns its id.
func openSession(t testing.TB, url, token string) string {
	t.Helper()
	res := post(t, url+transport.StreamablePath, token, initialize)
	id := res.Header.Get(sessionHeader)
	if res.StatusCode != 200 || id == "" {
		b, _ := io.ReadAll(res.Body)
		t.Fatalf("initialize: %d, session %q: %s", res.StatusCode, id, b)
	}
	io.Copy(io.Discard, res.Body)
	post(t, url+transport.StreamablePath, token, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, sessionHeader, id)
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
		{"no session", `{"jsonrpc":"2.0","id":"x","method":"tools/list"}`, []string{sessionHeader, "gone"}, 404, `"x"`, -32001},
		{"unknown method", `{"jsonrpc":"2.0","id":3,"method":"no/such"}`, []string{sessionHeader, session}, 400, "3", -32601},
		{"unknown method, modern", `{"jsonrpc":"2.0","id":3,"method":"no/such","params":{` + modernMeta + `}}`, []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "no/such"}, 404, "3", -32601},
		{"unknown tool, modern", unknown, unknownHeaders, 400, "7", -32602},
		{"unknown version", `{"jsonrpc":"2.0","id":3,"method":"tools/list"}`, []string{sessionHeader, session, versionHeader, "1999-01-01"}, 400, "3", -32600},
		{"too large", large, []string{sessionHeader, session}, 413, "null", -32600},
		{"wrong content type", `{}`, []string{"Content-Type", "text/html"}, 415, "null", -32600},
		{"wrong accept", `{}`, []string{"Accept", "text/html"}, 400, "null", -32600},
	} {
		res := post(t, url+transport.StreamablePath, "alice", tt.body, tt.headers...)
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
	for _, path := range []string{transport.StreamablePath, transport.SSEPath} {
		if res := post(t, url+path, "", initialize); res.StatusCode != 401 || res.Header.Get("WWW-Authenticate") == "" {
			t.Errorf("POST %s as nobody: %d", path, res.StatusCode)
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
		r := httptest.NewRequest("POST", transport.StreamablePath, strings.NewReader(body)).WithContext(ctx)
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

// TestHangUp ends a call by ending its connection or its session. Claude Code ends
// connections at the wish of its user.
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
	body = named(body, "claude-code")
	hangUp(func(ctx context.Context) { send(ctx, "POST", url+transport.StreamablePath, body, headers...) })

	// An SSE session ends with its stream, and with it the session's calls.
	hangUp(func(ctx context.Context) {
		endpoint := openSSE(ctx, t, url, "alice")
		post(t, url+endpoint, "alice", named(initialize, "claude-code"))
		post(t, url+endpoint, "alice", `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		post(t, url+endpoint, "alice", `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"run_code","arguments":{"code":"sleep 1h"}}}`)
		<-ctx.Done()
	})

	// A session's end ends its calls, and does not wait for them.
	hangUp(func(ctx context.Context) {
		id := openSession(t, url, "alice")
		go send(t.Context(), "POST", url+transport.StreamablePath,
			`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"run_code","arguments":{"code":"sleep 1h"}}}`, sessionHeader, id)
		<-ctx.Done()
		send(t.Context(), "DELETE", url+transport.StreamablePath, "", sessionHeader, id)
	})
}

// TestResume loses the connection in the middle of a call of an older version,
// which does not cancel it, and fetches the answer with another.
func TestResume(t *testing.T) {
	s, e := newTestServer(t, nil)
	url := serveHTTP(t, s)
	res := post(t, url+transport.StreamablePath, "alice", strings.Replace(initialize, "2025-06-18", "2025-11-25", 1))
	io.Copy(io.Discard, res.Body)
	id := res.Header.Get(sessionHeader)
	session := []string{sessionHeader, id, versionHeader, "2025-11-25"}
	post(t, url+transport.StreamablePath, "alice", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, session...)
	call := post(t, url+transport.StreamablePath, "alice",
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
		r, err := http.NewRequestWithContext(t.Context(), "GET", url+transport.StreamablePath, nil)
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
			if r := structured[answer.Run](t, res); r.Stdout != fmt.Sprintf("%d\n", i) {
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
			v := structured[answer.Run](t, res).Verdict
			got[v.Code]++
			if v.Code == sandbox.Cancelled && v.Cause != transport.ErrShutdown.Error() {
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
	b, _ := io.ReadAll(post(t, url+transport.StreamablePath, "alice", body, headers...).Body)
	if !strings.Contains(string(b), transport.ErrShutdown.Error()) {
		t.Errorf("a call after the end: %s", b)
	}
}
