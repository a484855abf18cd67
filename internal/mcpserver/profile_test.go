package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/profile"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/transport"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const emptySchema = `{"type":"object"}`

// testProfile is a profile whose tools show what calls are told.
func testProfile(name string, ended *atomic.Int32) *profile.Profile {
	return &profile.Profile{
		Name: name, ServerName: "their " + name, ServerVersion: "v9",
		Failure: func(err error) profile.Result { return profile.Text("theirs: " + err.Error()) },
		Tools: []profile.Tool{
			{Name: "run_code", Description: "d", Input: emptySchema, Scope: auth.ScopeRun,
				Run: func(ctx context.Context, c profile.Call, _ json.RawMessage) (profile.Result, error) {
					run, err := c.Run(ctx, sandbox.RunRequest{Code: "out hello"})
					return profile.Text(string(run.Verdict.Code), string(c.Principal)), err
				}},
			{Name: "remember", Description: "d", Input: emptySchema, Scope: auth.ScopeRun,
				Run: func(_ context.Context, c profile.Call, _ json.RawMessage) (profile.Result, error) {
					c.AtEnd(func(context.Context) { ended.Add(1) })
					return profile.Result{Texts: []string{c.Connection}, Images: []profile.Image{{MIMEType: "image/png", Data: []byte{1}}}}, nil
				}},
			{Name: "hang", Description: "d", Input: emptySchema, Scope: auth.ScopeRun,
				Run: func(ctx context.Context, c profile.Call, _ json.RawMessage) (profile.Result, error) {
					_, err := c.Run(ctx, sandbox.RunRequest{Code: "sleep 1h"})
					return profile.Result{}, err
				}},
			{Name: "fail", Description: "d", Input: emptySchema, Scope: auth.ScopeRun,
				Run: func(context.Context, profile.Call, json.RawMessage) (profile.Result, error) {
					return profile.Result{}, sandbox.Errorf(sandbox.Invalid, "no good")
				}},
			{Name: "panic", Description: "d", Input: emptySchema, Scope: auth.ScopeFiles,
				Run: func(context.Context, profile.Call, json.RawMessage) (profile.Result, error) { panic("oh") }},
		},
		Resources: []profile.Resource{{
			Template: "boxes://{id}/logs", Name: "logs", MIMEType: "text/plain",
			SandboxID: func(u *url.URL) string {
				if u.Scheme != "boxes" {
					return ""
				}
				return u.Host
			},
			Read: func(_ context.Context, _ sandbox.Principal, u *url.URL) ([]profile.Content, error) {
				return []profile.Content{{Text: "log of " + u.Host}, {URI: u.String() + "#more", Text: "more"}}, nil
			},
		}},
	}
}

func TestProfileOverStdio(t *testing.T) {
	var ended atomic.Int32
	s, _ := newTestServer(t, func(o *Options) { o.Profile = testProfile("x", &ended) })
	cs := serveStdio(t, s, nil)
	if got := cs.InitializeResult().ServerInfo; got.Name != "their x" || got.Version != "v9" {
		t.Errorf("server %q %q", got.Name, got.Version)
	}
	list, err := cs.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) != 5 {
		t.Errorf("%d tools, %v; want the profile's alone", len(list.Tools), err)
	}
	if res := callTool(t, cs, "run_code", nil); text(res) != "oklocal" || res.IsError {
		t.Errorf("run_code: %q, %v", text(res), res.IsError)
	}
	res := callTool(t, cs, "remember", nil)
	if image, ok := res.Content[1].(*mcp.ImageContent); text(res) != "" || !ok || image.MIMEType != "image/png" {
		t.Errorf("remember: %v; want no connection, as there is only one, and a picture", res.Content)
	}
	for tool, want := range map[string]string{"fail": "theirs: no good", "panic": "theirs: panic: a fault in the server"} {
		if res := callTool(t, cs, tool, nil); text(res) != want || !res.IsError {
			t.Errorf("%s: %q, %v; want %q", tool, text(res), res.IsError, want)
		}
	}
	read, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "boxes://b/logs"})
	if err != nil || len(read.Contents) != 2 || read.Contents[0].Text != "log of b" || read.Contents[1].URI != "boxes://b/logs#more" {
		t.Errorf("resource: %+v, %v", read, err)
	}
	if _, err := s.watch.follower(t.Context(), auth.Local(), "sandbox://b/logs"); err == nil || !strings.Contains(err.Error(), "boxes://{id}/logs") {
		t.Errorf("subscribing to a resource of the native profile: %v; want what can be subscribed to", err)
	}
}

func TestProfileLogsCanBeFollowed(t *testing.T) {
	s, e := newTestServer(t, func(o *Options) { o.Profile = testProfile("x", new(atomic.Int32)) })
	changed := make(chan string, 10)
	cs := serveStdio(t, s, &mcp.ClientOptions{ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
		changed <- r.Params.URI
	}})
	sb, err := e.Create(t.Context(), sandbox.Local, sandbox.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	uri := "boxes://" + sb.ID + "/logs"
	if err := cs.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "subscribers hear of a run", func() bool {
		if _, err := e.Start(t.Context(), sandbox.Local, sandbox.RunRequest{SandboxID: sb.ID, Code: "out more"}); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-changed:
			if got != uri {
				t.Errorf("notified of %q; want %q", got, uri)
			}
			return true
		default:
			return false
		}
	})
	if _, err := s.watch.follower(t.Context(), auth.Local(), "boxes://sbx_of_nobody/logs"); err == nil {
		t.Error("subscribed to the log of what there is not")
	}
}

// TestProfileThatHangs shows that a call which hangs keeps nobody waiting, and
// ends with its run when its client gives it up.
func TestProfileThatHangs(t *testing.T) {
	s, e := newTestServer(t, func(o *Options) { o.Profile = testProfile("x", new(atomic.Int32)) })
	cs := serveStdio(t, s, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "hang"})
		done <- err
	}()
	eventually(t, "the program runs", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.runs) == 1
	})
	if err := cs.Ping(t.Context(), nil); err != nil {
		t.Errorf("ping meanwhile: %v", err)
	}
	if res := callTool(t, cs, "run_code", nil); res.IsError {
		t.Errorf("another call meanwhile: %s", text(res))
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the call that was given up: %v", err)
	}
	eventually(t, "its program is stopped", func() bool { return e.stopped() == 1 })
}

func TestConnectionsOfProfiles(t *testing.T) {
	var ended atomic.Int32
	s, _ := newTestServer(t, func(o *Options) { o.Profile = testProfile("x", &ended) })
	address := serveHTTP(t, s)
	remember := func(session string) string {
		res := post(t, address+transport.StreamablePath, "p", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"remember"}}`, sessionHeader, session)
		defer res.Body.Close()
		if answer, err := io.ReadAll(res.Body); err != nil || !strings.Contains(string(answer), `"text":"`+session+`"`) {
			t.Fatalf("%s, %v; want the session's name, %q", answer, err, session)
		}
		return session
	}
	for n := range int32(2) {
		session := remember(openSession(t, address, "p"))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, address+transport.StreamablePath, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer p")
		req.Header.Set(sessionHeader, session)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		eventually(t, "the end of the connection is told", func() bool { return ended.Load() == n+1 })
	}
	// A call of the newer versions is a connection of its own, which nothing
	// can be kept for.
	cs := connectHTTP(t, address, "p", nil)
	if got := text(callTool(t, cs, "remember", nil)); got != "" {
		t.Errorf("a call by itself has the connection %q", got)
	}
	cs.Close()
	if ended.Load() != 2 {
		t.Errorf("%d ends are told; want 2", ended.Load())
	}
}

func TestGroup(t *testing.T) {
	native, _ := newTestServer(t, nil)
	other, _ := newTestServer(t, func(o *Options) { o.Profile = testProfile("x", new(atomic.Int32)) })
	g := NewGroup(other, native)
	srv := newGroupServer(t, g)
	for path, want := range map[string]string{
		"/mcp": "their x", "/mcp/x": "their x", "/mcp/native": "glovebox", "/mcp/y": "", "/mcp/native/z": "",
	} {
		c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		cs, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: srv + path, HTTPClient: &http.Client{Transport: bearer("p")}}, nil)
		if want == "" {
			if err == nil {
				cs.Close()
				t.Errorf("%s: there is something", path)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if got := cs.InitializeResult().ServerInfo.Name; got != want {
			t.Errorf("%s: %q; want %q", path, got, want)
		}
		cs.Close()
	}
	for path, want := range map[string]string{"/sse": "their x", "/mcp/x/sse": "their x", "/mcp/native/sse": "glovebox"} {
		c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		cs, err := c.Connect(t.Context(), &mcp.SSEClientTransport{Endpoint: srv + path, HTTPClient: &http.Client{Transport: bearer("p")}}, nil)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if got := cs.InitializeResult().ServerInfo.Name; got != want {
			t.Errorf("%s: %q; want %q", path, got, want)
		}
		cs.Close()
	}
	if err := g.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestSessionless is what clients do that only ever post.
func TestSessionless(t *testing.T) {
	p := testProfile("x", new(atomic.Int32))
	p.Sessionless = true
	s, _ := newTestServer(t, func(o *Options) { o.Profile = p })
	address := serveHTTP(t, s)
	send := func(header http.Header, body string) (int, string, http.Header) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+"/mcp", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = header
		req.Header.Set("Authorization", "Bearer p")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		answer, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(answer), res.Header
	}
	curl := func() http.Header { return http.Header{"Content-Type": {"application/json"}, "Accept": {"*/*"}} }
	for _, tt := range []struct {
		header http.Header
		body   string
		status int
		want   string
	}{
		{curl(), `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2024-11-05","clientInfo":{"name":"c","version":"1"}}}`, 200, `"protocolVersion":"2024-11-05"`},
		{curl(), `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2024-11-05"}}`, 200, `"protocolVersion":"2024-11-05"`},
		{curl(), `{"jsonrpc":"2.0","method":"notifications/initialized"}`, 202, ""},
		{curl(), `{"jsonrpc":"2.0","id":2,"method":"ping"}`, 200, `"result":{}`},
		{curl(), `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, 200, `"name":"run_code"`},
		{http.Header{}, `{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"run_code","arguments":{}}}`, 200, `"text":"ok"`},
		{curl(), `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"fail"}}`, 200, `"isError":true`},
		{curl(), `{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"nothing"}}`, 200, `"error":`},
		{curl(), `{"jsonrpc":"2.0","id":4,"method":"no/such"}`, 200, `"code":-32601`},
		{curl(), `{"jsonrpc":`, 200, `"code":-32700`},
	} {
		status, answer, header := send(tt.header, tt.body)
		if status != tt.status || !strings.Contains(answer, tt.want) {
			t.Errorf("%s: %d %s; want %d with %s", tt.body, status, answer, tt.status, tt.want)
		}
		if tt.want != "" && (header.Get("Content-Type") != "application/json" || header.Get(sessionHeader) != "") {
			t.Errorf("%s: type %q, session %q; want JSON and none", tt.body, header.Get("Content-Type"), header.Get(sessionHeader))
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/mcp", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer p")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	first := make([]byte, len(": MCP SSE stream connected\n\n"))
	if _, err := io.ReadFull(res.Body, first); err != nil || string(first) != ": MCP SSE stream connected\n\n" || res.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("stream: %q, %v, type %q", first, err, res.Header.Get("Content-Type"))
	}
	cancel()
	if _, err := io.ReadAll(res.Body); !errors.Is(err, context.Canceled) {
		t.Errorf("the stream ended with %v", err)
	}
	res.Body.Close()
	if status, _, _ := send(http.Header{"X-Method-Override": {"x"}}, strings.Repeat("x", transport.DefaultMaxMessageBytes+1)); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a body that is too large: %d", status)
	}
}
