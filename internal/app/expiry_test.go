package app

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestExpiredTokenEndsStreams opens what lasts with an issuer's tokens of five
// minutes: streams of MCP, and a WebSocket to a port. All of it ends after the
// token. A session continues if its client renews the token in time.
func TestExpiredTokenEndsStreams(t *testing.T) {
	o := startIssuer(t)
	clock := startClock()
	sys, url := serveHTTP(t, func(opts *Options) {
		withIssuer(o)(opts)
		opts.now = clock.now
	})
	tokenOf := func(who string) string {
		return token(t, "one", o.keys["one"], o.claims(map[string]any{
			"sub": who, "exp": clock.now().Add(5 * time.Minute).Unix(),
		}))
	}
	do := func(token, method, path, body string, headers ...string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(body))
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
	streams := map[string]io.Reader{}
	users := []string{"lapses", "renews"}
	for _, who := range users {
		tok := tokenOf(who)
		res := do(tok, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
		io.Copy(io.Discard, res.Body)
		id := res.Header.Get("Mcp-Session-Id")
		do(tok, "POST", "/mcp", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, "Mcp-Session-Id", id)
		sessions = append(sessions, id)
		streams[who+": GET /mcp"] = do(tok, "GET", "/mcp", "", "Mcp-Session-Id", id).Body
		streams[who+": GET /sse"] = do(tok, "GET", "/sse", "").Body
	}
	streams["lapses: WebSocket"] = openSocket(t, sys, url, sandbox.Principal("oidc:"+o.url+"#lapses"), tokenOf("lapses"))
	over := make(chan string, len(streams))
	for name, r := range streams {
		go func() {
			io.Copy(io.Discard, r)
			over <- name
		}()
	}

	clock.move(4 * time.Minute)
	const ping = `{"jsonrpc":"2.0","id":2,"method":"ping"}`
	renewed := tokenOf("renews")
	if res := do(renewed, "POST", "/mcp", ping, "Mcp-Session-Id", sessions[1]); res.StatusCode != 200 {
		t.Fatalf("a session with a renewed token: %d", res.StatusCode)
	}
	clock.move(90 * time.Second)
	select {
	case name := <-over:
		t.Errorf("%s ended half a minute after its token", name)
	case <-time.After(auth.RevocationEvery + time.Second):
	}
	clock.move(35 * time.Second)
	limit := time.After(15 * time.Second)
	for range len(streams) {
		select {
		case name := <-over:
			delete(streams, name)
		case <-limit:
			for name := range streams {
				t.Errorf("%s outlives its token", name)
			}
			t.FailNow()
		}
	}
	if res := do(renewed, "POST", "/mcp", ping, "Mcp-Session-Id", sessions[1]); res.StatusCode != 200 {
		t.Errorf("the session of the renewed token: %d", res.StatusCode)
	}
	again := tokenOf("lapses")
	for deadline := time.Now().Add(10 * time.Second); ; { // the session ends beside its stream
		res := do(again, "POST", "/mcp", ping, "Mcp-Session-Id", sessions[0])
		if res.StatusCode == 404 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the session of the expired token: %d", res.StatusCode)
		}
	}
}

// openSocket opens a WebSocket to a program in a new sandbox of who.
func openSocket(t *testing.T, sys *System, url string, who sandbox.Principal, token string) io.Reader {
	t.Helper()
	sb, err := sys.Engine.Create(t.Context(), who, sandbox.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	// Boxes of the fake driver share this machine's loopback address.
	program := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		io.Copy(io.Discard, conn)
	}))
	t.Cleanup(program.Close)
	addr := strings.TrimPrefix(url, "http://")
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "GET /ports/%s/%d/ HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		sb.ID, program.Listener.Addr().(*net.TCPAddr).Port, addr, token)
	r := bufio.NewReader(conn)
	if line, err := r.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 101 ") {
		t.Fatalf("the WebSocket: %q, %v", line, err)
	}
	return r
}
