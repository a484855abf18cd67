package guest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/guest/guesttest"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// TestInside uses the contexts as a program of the box does, and tries more than it
// may.
func TestInside(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no Python")
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String() // the guest's, when l is closed
	h := guesttest.New(t, "--interpreter", address)
	client := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return guesttest.Dialer(h.Socket)(ctx)
	}}
	defer client.CloseIdleConnections()
	inside := new(http.Transport)
	defer inside.CloseIdleConnections()
	ask := func(by http.RoundTripper, method, path, body string, headers ...string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		resp, err := by.RoundTrip(req)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	// A program has the port: the guest goes on without, and tries again later.
	if status, body := ask(client, "GET", "/contexts", ""); status != 200 {
		t.Fatalf("while a program has the port: %d, %s", status, body)
	}
	l.Close()
	if _, err := h.Contexts(t.Context()); err != nil { // a client of our own
		t.Fatal(err)
	}
	if status, body := ask(inside, "GET", "/health", ""); status != 0 {
		t.Errorf("before a client of E2B's protocol: %d, %s", status, body)
	}
	ask(client, "GET", "/contexts", "")
	if status, body := ask(inside, "GET", "/health", ""); status != 200 || body != `"OK"` {
		t.Fatalf("health: %d, %s", status, body)
	}

	// This machine may lack the home of the user, where contexts start by default.
	status, made := ask(inside, "POST", "/contexts", `{"language":"python","cwd":"/tmp","id":"mine"}`, "Authorization", "Basic cm9vdDo=")
	var context guestapi.Context
	if err := json.Unmarshal([]byte(made), &context); err != nil || status != 200 || context.ID == "mine" || context.Cwd != "/tmp" {
		t.Fatalf("a new context: %d, %s", status, made)
	}
	code := `{"code":"import os; (os.getuid(), os.getcwd())","context_id":"` + context.ID + `"}`
	text := func(status int, body string) string {
		t.Helper()
		for line := range strings.Lines(body) {
			var ev struct{ Type, Text string }
			if err := json.Unmarshal([]byte(line), &ev); err != nil || ev.Type == "end" {
				t.Fatalf("status %d, event %s", status, line)
			}
			if ev.Type == "result" {
				return ev.Text
			}
		}
		t.Fatalf("status %d, no result: %s", status, body)
		return ""
	}
	_, other := ask(client, "POST", "/contexts", `{"language":"python","cwd":"/tmp","id":"other"}`)
	if !strings.Contains(other, `"other"`) {
		t.Fatalf("a context of the client: %s", other)
	}
	want := text(ask(client, "POST", "/execute", strings.Replace(code, context.ID, "other", 1)))
	if os.Geteuid() == 0 {
		if status, body := ask(inside, "POST", "/contexts", `{"language":"python","cwd":"/root"}`); status != 403 {
			t.Errorf("a context in root's directory: %d, %s", status, body)
		}
	}
	for _, headers := range [][]string{nil, {"Authorization", "Basic cm9vdDo="}, {guestapi.HeaderExtensions, "1"}} {
		if got := text(ask(inside, "POST", "/execute", code, headers...)); got != want {
			t.Errorf("with %q: %s; want %s", headers, got, want)
		}
	}
	if os.Geteuid() == 0 { // an ordinary user's guest has one user only
		if status, body := ask(client, "POST", "/contexts", `{"language":"python","cwd":"/tmp","id":"root's"}`, "Authorization", "Basic cm9vdDo="); status != 200 {
			t.Fatalf("a context of root: %d, %s", status, body)
		}
		roots := strings.Replace(code, context.ID, "root's", 1)
		for _, c := range []struct{ method, path, body string }{
			{"POST", "/execute", roots}, {"POST", "/contexts/root's/restart", ""}, {"DELETE", "/contexts/root's", ""},
		} {
			if status, body := ask(inside, c.method, c.path, c.body); status != 403 || !strings.Contains(body, "belongs to user root") {
				t.Errorf("%s %s of root's context: %d, %s", c.method, c.path, status, body)
			}
		}
		if got := text(ask(client, "POST", "/execute", roots)); !strings.HasPrefix(got, "(0, ") {
			t.Errorf("the client in root's context: %s", got)
		}
	}
	if status, body := ask(inside, "POST", "/execute", strings.Replace(code, "{", `{"tag":"kept","timeout_ms":1,"stdin":true,`, 1)); status != 200 || !strings.Contains(body, `"result"`) {
		t.Errorf("with fields of ours: %d, %s", status, body)
	}
	if status, body := ask(client, "POST", guestapi.PathExecutions+"/kept/connect", ""); status != 404 {
		t.Errorf("it made a kept run: %d, %s", status, body)
	}
	if status, body := ask(inside, "POST", "/contexts/"+context.ID+"/restart", ""); status >= 300 {
		t.Errorf("restart: %d, %s", status, body)
	}
	if status, body := ask(inside, "DELETE", "/contexts/none", ""); status != 404 {
		t.Errorf("removal of none: %d, %s", status, body)
	}
	for _, body := range []string{"{", "[]", `{"code":1}`} {
		if status, text := ask(inside, "POST", "/execute", body); status != 400 {
			t.Errorf("%s: %d, %s", body, status, text)
		}
	}
	for _, path := range []string{guestapi.ProcStart, guestapi.FSStat, guestapi.PathLimits, guestapi.PathFiles, guestapi.PathMetrics, "/contexts/default-python/input", "/contexts/default-python/prepare", guestapi.PathPorts + "22"} {
		for _, method := range []string{"GET", "POST"} {
			if status, body := ask(inside, method, path, "{}"); status != 404 {
				t.Errorf("%s %s: %d, %s", method, path, status, body)
			}
		}
	}
	// More connections than there is room for wait, and nothing breaks.
	var open []net.Conn
	for range 80 {
		c, err := net.Dial("tcp4", address)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(c, "GET /health HTTP/1.1\r\nHost: a\r\n")
		open = append(open, c)
	}
	for _, c := range open {
		c.Close()
	}
	if status, body := ask(inside, "GET", "/health", ""); status != 200 || body != `"OK"` {
		t.Errorf("after many connections: %d, %s", status, body)
	}
}
