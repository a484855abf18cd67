package mcpserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/transport"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A logBuffer is a log that tests read while the server writes it.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func (b *logBuffer) has(text string) func() bool {
	return func() bool { return strings.Contains(b.String(), text) }
}

// keepLog makes a server log into a buffer.
func keepLog(b *logBuffer) func(*Options) {
	return func(o *Options) { o.Log = slog.New(slog.NewTextHandler(b, nil)) }
}

// gaveUpLog is what the log says when a run outlives its call.
const gaveUpLog = "the client gave up the call"

// An endedContext is a context that a test ends with any error.
type endedContext struct {
	context.Context
	err  error
	done chan struct{}
}

func (c endedContext) Done() <-chan struct{} { return c.done }

func (c endedContext) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// running waits for the only run of the fake engine, and returns its id.
func (e *fakeEngine) running(t *testing.T) (id string) {
	t.Helper()
	eventually(t, "a run", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		for id = range e.runs {
			return len(e.runs) == 1
		}
		return false
	})
	return id
}

// TestClientTimeoutKeepsTheRun has a client give up a call. The SDK for Go gives the
// error of its context as the reason, except over HTTP from 2026-07-28 on.
func TestClientTimeoutKeepsTheRun(t *testing.T) {
	for name, connect := range map[string]func(*testing.T, *Server) *mcp.ClientSession{
		"stdio": func(t *testing.T, s *Server) *mcp.ClientSession { return serveStdio(t, s, nil) },
		"sse":   func(t *testing.T, s *Server) *mcp.ClientSession { return connectSSE(t, serveHTTP(t, s), "alice") },
	} {
		t.Run(name, func(t *testing.T) {
			var log logBuffer
			s, e := newTestServer(t, keepLog(&log))
			cs := connect(t, s)
			ctx := endedContext{t.Context(), context.DeadlineExceeded, make(chan struct{})}
			var runID string
			go func() {
				defer close(ctx.done)
				runID = e.running(t)
			}()
			_, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "run_code", Arguments: args{"code": "sleep 1h"}})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("CallTool: %v", err)
			}
			eventually(t, "the server knows", log.has(gaveUpLog))
			if e.stopped() != 0 || strings.Contains(log.String(), "level=ERROR") {
				t.Errorf("%d stops; log %s", e.stopped(), &log)
			}
			if r := structured[answer.Run](t, callTool(t, cs, "get_run", args{"run_id": runID})); r.Status != sandbox.RunRunning {
				t.Errorf("the run was given up and found: %+v", r)
			}
		})
	}
}

// send posts a message as alice, and waits for the end of the answer or of ctx.
func send(ctx context.Context, t *testing.T, url, body string, headers ...string) {
	r, err := http.NewRequestWithContext(ctx, "POST", url, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return
	}
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Authorization": {"Bearer alice"}}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	if res, err := http.DefaultClient.Do(r); err == nil {
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
}

// TestClientTimeoutInASession gives up a call in a session over HTTP. Only the session
// of the call can cancel it.
func TestClientTimeoutInASession(t *testing.T) {
	for reason, stops := range map[string]int{"McpError: MCP error -32001: Request timed out": 0, "AbortError: This operation was aborted": 1} {
		var log logBuffer
		s, e := newTestServer(t, keepLog(&log))
		url := serveHTTP(t, s) + transport.StreamablePath
		own, other := openSession(t, strings.TrimSuffix(url, transport.StreamablePath), "alice"), openSession(t, strings.TrimSuffix(url, transport.StreamablePath), "alice")
		go send(t.Context(), t, url, callLine(2, "run_code", `{"code":"sleep 1h"}`), sessionHeader, own, "Glovebox-Call", "http "+other+" int64 2")
		e.running(t)
		eventually(t, "a waiting call", func() bool { return e.waiting.Load() == 1 })
		post(t, url, "alice", cancelLine(2, "AbortError"), sessionHeader, other)
		post(t, url, "alice", cancelLine(2, reason), sessionHeader, own)
		eventually(t, "the call's end", log.has("tool=run_code"))
		if e.stopped() != stops || log.has(gaveUpLog)() != (stops == 0) {
			t.Errorf("%q: %d stops, want %d; log %s", reason, e.stopped(), stops, &log)
		}
	}
}

// callLine is a call of a tool, as a line of JSON-RPC.
func callLine(id int, tool, arguments string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, tool, arguments)
}

func cancelLine(id int, reason string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d,"reason":%q}}`, id, reason)
}

// TestGrace follows a run whose call was cancelled, with the reasons that clients
// send.
func TestGrace(t *testing.T) {
	const timeout = "McpError: MCP error -32001: Request timed out"
	for _, tt := range []struct {
		name, cancel string
		next         string // a call that follows after a minute
		stops        int    // after two and after ten minutes
		late         int
	}{
		{name: "Timeout", cancel: cancelLine(2, timeout), late: 1},
		{name: "AnotherCall", cancel: cancelLine(3, timeout)},
		{name: "User", cancel: cancelLine(2, "AbortError: This operation was aborted"), stops: 1, late: 1},
		{name: "NoReason", cancel: `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`, stops: 1, late: 1},
		{name: "Claimed", cancel: cancelLine(2, timeout), next: "get_run"},
		{name: "Input", cancel: cancelLine(2, timeout), next: "send_input"},
		{name: "SameKey", cancel: cancelLine(2, timeout), next: "run_code"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, e := newTestServer(t, nil)
				c := newLineClient(t, s)
				go func() {
					for c.lines.Scan() { // answers
					}
				}()
				c.send(initialize)
				c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
				const program = `{"code":"sleep 1h","idempotency_key":"k","wait_seconds":%d}`
				c.send(callLine(2, "run_code", fmt.Sprintf(program, 45)))
				synctest.Wait()
				time.Sleep(30 * time.Second)
				c.send(tt.cancel)
				synctest.Wait()
				time.Sleep(time.Minute)
				id := e.running(t)
				switch tt.next {
				case "get_run":
					c.send(callLine(3, "get_run", fmt.Sprintf(`{"run_id":%q}`, id)))
				case "send_input":
					c.send(callLine(3, "send_input", fmt.Sprintf(`{"run_id":%q,"text":"x"}`, id)))
				case "run_code":
					c.send(callLine(3, "run_code", fmt.Sprintf(program, 1)))
				}
				time.Sleep(59 * time.Second)
				synctest.Wait()
				if n := e.stopped(); n != tt.stops {
					t.Errorf("%d stops within the time of grace, want %d", n, tt.stops)
				}
				time.Sleep(8 * time.Minute)
				synctest.Wait()
				if n := e.stopped(); n != tt.late {
					t.Errorf("%d stops after it, want %d", n, tt.late)
				}
				if len(e.requests) != 1 {
					t.Errorf("%d starts, want one", len(e.requests))
				}
				c.in.Close()
				<-c.done
			})
		})
	}
}

// TestDisconnectEndsGrace closes the input of a server whose client gave up a call.
func TestDisconnectEndsGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, e := newTestServer(t, nil)
		c := newLineClient(t, s)
		go func() {
			for c.lines.Scan() {
			}
		}()
		c.send(initialize)
		c.send(callLine(2, "run_code", `{"code":"sleep 1h"}`))
		synctest.Wait()
		c.send(cancelLine(2, "request timeout"))
		synctest.Wait()
		if e.stopped() != 0 {
			t.Error("the run is stopped too early")
		}
		c.in.Close()
		<-c.done
		if e.stopped() != 1 {
			t.Error("the run outlives its client")
		}
	})
}

// TestCancelledCallIsNoFault cancels get_run, which is not an error of the server.
func TestCancelledCallIsNoFault(t *testing.T) {
	var log logBuffer
	s, e := newTestServer(t, keepLog(&log))
	cs := serveStdio(t, s, nil)
	r := run(t, cs, "sleep 1h", args{"wait_seconds": 0})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		eventually(t, "a waiting call", func() bool { return e.waiting.Load() == 1 })
	}()
	if _, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "get_run", Arguments: args{"run_id": r.RunID, "wait_seconds": 40}}); !errors.Is(err, context.Canceled) {
		t.Errorf("CallTool: %v", err)
	}
	eventually(t, "its line in the log", log.has("tool=get_run"))
	if text := log.String(); strings.Contains(text, "level=ERROR") || e.stopped() != 0 {
		t.Errorf("%d stops; log:\n%s", e.stopped(), text)
	}
}

// TestHangUpWithAKey closes the request of a call. With a key, the client can repeat
// the call, and gets the same run.
func TestHangUpWithAKey(t *testing.T) {
	var log logBuffer
	s, e := newTestServer(t, keepLog(&log))
	url := serveHTTP(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	body, headers := modernCall("run_code", `{"code":"sleep 1h","idempotency_key":"k"}`)
	done := make(chan struct{})
	go func() {
		defer close(done)
		send(ctx, t, url+transport.StreamablePath, body, headers...)
	}()
	id := e.running(t)
	cancel()
	<-done
	eventually(t, "the server knows", log.has(gaveUpLog))
	if e.stopped() != 0 {
		t.Error("the run is stopped")
	}
	res := post(t, url+transport.StreamablePath, "alice", strings.Replace(body, `"k"`, `"k","wait_seconds":0`, 1), headers...)
	if b, err := io.ReadAll(res.Body); err != nil || !strings.Contains(string(b), id) {
		t.Errorf("the repeated call: %s, %v", b, err)
	}
}

// TestIdempotencyKey repeats calls in other sessions, as other principals, and with
// other arguments.
func TestIdempotencyKey(t *testing.T) {
	s, e := newTestServer(t, nil)
	url := serveHTTP(t, s)
	alice, again, bob := connectHTTP(t, url, "alice", nil), connectHTTP(t, url, "alice", nil), connectHTTP(t, url, "bob", nil)
	first := run(t, alice, "out 1", args{"idempotency_key": "k"})
	for _, a := range []args{{"idempotency_key": "k"}, {"idempotency_key": "k", "output_bytes": 500, "wait_seconds": 3}} {
		if r := run(t, again, "out 1", a); r.RunID != first.RunID || r.SandboxID != first.SandboxID || r.Stdout != "1\n" {
			t.Errorf("%v: %+v, want run %s", a, r, first.RunID)
		}
	}
	if r := run(t, bob, "out 1", args{"idempotency_key": "k"}); r.RunID == first.RunID || r.RunID == "" {
		t.Errorf("another principal gets %+v", r)
	}
	if n := len(e.requests); n != 2 {
		t.Errorf("%d starts, want 2", n)
	}
	for _, tt := range []struct {
		tool string
		a    args
		want string
	}{
		{"run_code", args{"code": "out 2", "idempotency_key": "k"}, "idempotency_key: a call with other arguments had this key"},
		{"run_command", args{"command": "out 1", "idempotency_key": "k"}, "idempotency_key: a call with other arguments had this key"},
		{"run_code", args{"code": "out 2", "idempotency_key": ""}, "idempotency_key: it has 0 bytes"},
		{"run_code", args{"code": "out 2", "idempotency_key": strings.Repeat("k", maxKey+1)}, "idempotency_key: it has 257 bytes"},
	} {
		res := callTool(t, alice, tt.tool, tt.a)
		if p := structured[sandbox.Problem](t, res); !res.IsError || p.Argument != "idempotency_key" || !strings.Contains(p.Message, tt.want) {
			t.Errorf("%s %v: %s", tt.tool, tt.a, text(res))
		}
	}
	// A start that failed is not a run.
	if res := callTool(t, alice, "run_code", args{"code": "fail exhausted", "idempotency_key": "f"}); !res.IsError {
		t.Error(text(res))
	}
	callTool(t, alice, "run_code", args{"code": "fail exhausted", "idempotency_key": "f"})
	if n := len(e.requests); n != 4 {
		t.Errorf("%d starts, want 4", n)
	}
}

// TestWaitsNoLongerThanTheClient asks for more time than clients have.
func TestWaitsNoLongerThanTheClient(t *testing.T) {
	for name, want := range map[string]time.Duration{
		"unknown": 50 * time.Second, "claude-code": 110 * time.Second, "codex-mcp-client": 110 * time.Second,
		"gemini-cli-mcp-client-glovebox": 9 * time.Minute,
	} {
		for tool, more := range map[string]args{"run_code": {"code": "sleep 1h"}, "get_run": {}, "install_packages": {"packages": []string{"x\nsleep 1h\nout"}, "network": "internet"}} {
			t.Run(name+"/"+tool, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, e := newTestServer(t, nil)
					cs := serveStdioAs(t, s, name, nil)
					if tool == "get_run" {
						callTool(t, cs, "run_code", args{"code": "sleep 1h", "wait_seconds": 0})
						more["run_id"] = e.running(t)
					}
					more["wait_seconds"] = 600
					began := time.Now()
					res := callTool(t, cs, tool, more)
					if waited := time.Since(began); waited != want {
						t.Errorf("the call took %v, want %v", waited, want)
					}
					note := fmt.Sprintf("The call waited %.0f of the 600 s in wait_seconds", want.Seconds())
					if !strings.Contains(text(res), note) || !strings.Contains(text(res), "The run goes on. get_run with its run_id") {
						t.Errorf("the text does not say how to go on: %s", text(res))
					}
				})
			})
		}
	}
}

// TestGetSandboxFindsTheRun finds a run of which only the sandbox is known.
func TestGetSandboxFindsTheRun(t *testing.T) {
	s, _ := newTestServer(t, nil)
	cs := serveStdio(t, s, nil)
	done := run(t, cs, "exit 3", nil)
	going := run(t, cs, "sleep 1h", args{"sandbox_id": done.SandboxID, "wait_seconds": 0})
	res := callTool(t, cs, "get_sandbox", args{"sandbox_id": done.SandboxID})
	r := structured[sandboxResult](t, res)
	if len(r.Runs) != 2 || r.Runs[0].ID != done.RunID || r.Runs[0].Verdict != sandbox.Failed || r.Runs[1].ID != going.RunID || r.Runs[1].Status != sandbox.RunRunning {
		t.Errorf("%+v", r.Runs)
	}
	for _, want := range []string{"run " + done.RunID + ": failed", "run " + going.RunID + ": running"} {
		if !strings.Contains(text(res), want) {
			t.Errorf("%q is not in %s", want, text(res))
		}
	}
}

// TestIdempotencyKeyAfterRestart repeats calls at another server with the same
// engine. The calls of the local user end with their server.
func TestIdempotencyKeyAfterRestart(t *testing.T) {
	s, e := newTestServer(t, nil)
	alice := connectHTTP(t, serveHTTP(t, s), "alice", nil)
	first := run(t, alice, "out 1", args{"idempotency_key": "k"})
	mine := run(t, serveStdio(t, s, nil), "out 1", args{"idempotency_key": "k"})
	if key := e.requests[0].Key; key == nil || e.requests[1].Key != nil {
		t.Fatalf("the requests have the keys %v and %v", e.requests[0].Key, e.requests[1].Key)
	} else if e.requests[0].Key.Request == runKey("other", "run_code").Request {
		t.Error("the fingerprint does not depend on the key")
	}
	next, _ := newTestServer(t, func(o *Options) { o.Engine = e })
	url := serveHTTP(t, next)
	alice = connectHTTP(t, url, "alice", nil)
	if r := run(t, alice, "out 1", args{"idempotency_key": "k"}); r.RunID != first.RunID || r.Stdout != "1\n" {
		t.Errorf("%+v, want run %s", r, first.RunID)
	}
	res := callTool(t, alice, "run_code", args{"code": "out 2", "idempotency_key": "k"})
	if p := structured[sandbox.Problem](t, res); !res.IsError || !strings.Contains(p.Message, "a call with other arguments had this key") {
		t.Errorf("other arguments: %s", text(res))
	}
	if r := run(t, connectHTTP(t, url, "bob", nil), "out 1", args{"idempotency_key": "k"}); r.RunID == first.RunID {
		t.Error("another principal gets the run")
	}
	if r := run(t, serveStdio(t, next, nil), "out 1", args{"idempotency_key": "k"}); r.RunID == mine.RunID {
		t.Error("the local user gets a run of the server before")
	}
}

// TestShutdownLeavesKeyedRuns shuts down a server during two calls. The run of the call
// with a key goes on, because the repeated call finds it at the next server.
func TestShutdownLeavesKeyedRuns(t *testing.T) {
	s, e := newTestServer(t, nil)
	url := serveHTTP(t, s)
	body, headers := modernCall("run_code", `{"code":"sleep 1h","idempotency_key":"k"}`)
	plain, plainHeaders := modernCall("run_code", `{"code":"sleep 2h"}`)
	var calls sync.WaitGroup
	calls.Go(func() { send(t.Context(), t, url+transport.StreamablePath, body, headers...) })
	id := e.running(t)
	calls.Go(func() { send(t.Context(), t, url+transport.StreamablePath, plain, plainHeaders...) })
	eventually(t, "both runs have begun", func() bool { return e.waiting.Load() == 2 })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	calls.Wait()
	if r, err := e.Wait(ctx, "alice", id); r.Status != sandbox.RunRunning || e.stopped() != 1 {
		t.Errorf("the run with a key is %s, %v; %d runs were stopped", r.Status, err, e.stopped())
	}
}

// TestEndStopsRunsInGrace revokes a caller whose client gave up a call.
func TestEndStopsRunsInGrace(t *testing.T) {
	var log logBuffer
	s, e := newTestServer(t, keepLog(&log))
	url := serveHTTP(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	body, headers := modernCall("run_code", `{"code":"sleep 1h","idempotency_key":"k"}`)
	done := make(chan struct{})
	go func() {
		defer close(done)
		send(ctx, t, url+transport.StreamablePath, body, headers...)
	}()
	e.running(t)
	cancel()
	<-done
	eventually(t, "the server knows", log.has(gaveUpLog))
	if !s.Busy() {
		t.Error("no look for revoked tokens while a run is in grace")
	}
	s.End(func(id auth.Identity) bool { return id.Principal != "alice" })
	if e.stopped() != 0 {
		t.Error("the end of others stops the run")
	}
	s.End(func(id auth.Identity) bool { return id.Principal == "alice" })
	eventually(t, "the run ends", func() bool { return e.stopped() == 1 })
}
