package mcpserver

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/profile"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/transport"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// modernPost sends a message of the newest version, without a network, and returns when
// it was answered or ctx has ended.
func modernPost(ctx context.Context, s *Server, body string, headers []string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest("POST", transport.StreamablePath, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	s.Handler().ServeHTTP(w, r.WithContext(as(ctx, "alice")))
	return w
}

// TestLostConnection has the connection of a call end without a word, on each transport
// over HTTP. The run goes on for two minutes. get_run without an argument and a repeated
// call with the key find it, and it goes on for good.
func TestLostConnection(t *testing.T) {
	const program = `{"code":"sleep 1h","idempotency_key":"k"}`
	begin := map[string]func(*testing.T, context.Context, *Server, string) (over chan struct{}){
		"modern": func(_ *testing.T, ctx context.Context, s *Server, arguments string) chan struct{} {
			over := make(chan struct{})
			go func() {
				defer close(over)
				body, headers := modernCall("run_code", arguments)
				modernPost(ctx, s, body, headers)
			}()
			return over
		},
		"sse": func(t *testing.T, ctx context.Context, s *Server, arguments string) chan struct{} {
			c := &sseTester{s: s}
			over := c.open(t, ctx, "alice")
			c.post(callLine(2, "run_code", arguments))
			return over
		},
	}
	for over, call := range begin {
		for _, tt := range []struct {
			name, arguments, next, nextArguments string
			late                                 int // stops after ten minutes
		}{
			{"unclaimed", `{"code":"sleep 1h"}`, "", "", 1},
			{"unclaimed with a key", program, "", "", 1},
			{"listed", `{"code":"sleep 1h"}`, "get_run", `{}`, 1},
			{"claimed", `{"code":"sleep 1h"}`, "get_run", "", 0},
			{"repeated", program, "run_code", strings.Replace(program, "}", `,"wait_seconds":0}`, 1), 0},
		} {
			t.Run(over+"/"+tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, e := newTestServer(t, nil)
					ctx, cancel := context.WithCancel(t.Context())
					ended := call(t, ctx, s, tt.arguments)
					synctest.Wait()
					time.Sleep(20 * time.Second)
					cancel()
					<-ended
					synctest.Wait()
					id := e.running(t)
					time.Sleep(100 * time.Second)
					if tt.next != "" {
						if tt.nextArguments == "" {
							tt.nextArguments = `{"run_id":"` + id + `"}`
						}
						body, headers := modernCall(tt.next, tt.nextArguments)
						if got := modernPost(t.Context(), s, body, headers).Body.String(); !strings.Contains(got, id) || !strings.Contains(got, "running") {
							t.Errorf("%s does not find the run: %s", tt.next, got)
						}
					}
					synctest.Wait()
					if n := e.stopped(); n != 0 {
						t.Errorf("%d stops within the time of grace", n)
					}
					time.Sleep(10 * time.Minute)
					synctest.Wait()
					if n := e.stopped(); n != tt.late || len(e.requests) != 1 {
						t.Errorf("%d stops after it, want %d; %d starts", n, tt.late, len(e.requests))
					}
				})
			})
		}
	}
}

// TestLostRequestInASession closes the request of a call in a session, which cancels
// nothing: the client may fetch the answer with another request.
func TestLostRequestInASession(t *testing.T) {
	s, e := newTestServer(t, nil)
	url := serveHTTP(t, s)
	session := openSession(t, url, "alice")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		send(ctx, t, url+transport.StreamablePath, callLine(2, "run_code", `{"code":"sleep 1h"}`), sessionHeader, session)
	}()
	id := e.running(t)
	cancel()
	<-done
	again := connectHTTP(t, url, "alice", nil)
	if res := callTool(t, again, "get_run", args{}); !strings.Contains(text(res), id+": running") || e.stopped() != 0 {
		t.Errorf("%d stops: %s", e.stopped(), text(res))
	}
}

// TestGivenUpCallOfAProfile stops the run of a call that its client gave up: the tools of
// a profile cannot find it.
func TestGivenUpCallOfAProfile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, e := newTestServer(t, func(o *Options) { o.Profile = runProfile() })
		c := newLineClient(t, s)
		go func() {
			for c.lines.Scan() {
			}
		}()
		c.send(initialize)
		c.send(callLine(2, "go", `{}`))
		synctest.Wait()
		e.running(t)
		c.send(cancelLine(2, "request timeout"))
		synctest.Wait()
		if e.stopped() != 1 {
			t.Error("the run goes on")
		}
		c.in.Close()
		<-c.done
	})
}

// runProfile is a profile with a tool that runs a program to its end.
func runProfile() *profile.Profile {
	return &profile.Profile{Name: "p", Tools: []profile.Tool{{
		Name: "go", Input: `{"type":"object"}`, Scope: "run",
		Run: func(ctx context.Context, c profile.Call, _ json.RawMessage) (profile.Result, error) {
			_, err := c.Run(ctx, sandbox.RunRequest{Code: "sleep 1h"})
			return profile.Result{}, err
		},
	}}}
}
