package mcpserver

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/transport"
)

// TestLogNotifications sets a level over each transport of the versions with sessions. The
// session hears of its own principal's runs, and a session without a level of none.
func TestLogNotifications(t *testing.T) {
	s, _ := newTestServer(t, nil)
	url := serveHTTP(t, s)
	for name, endpoint := range map[string]mcp.Transport{
		"Streamable HTTP": &mcp.StreamableClientTransport{Endpoint: url + transport.StreamablePath, HTTPClient: &http.Client{Transport: bearer("alice")}},
		"SSE":             &mcp.SSEClientTransport{Endpoint: url + transport.SSEPath, HTTPClient: &http.Client{Transport: bearer("bob")}},
		"stdio":           nil,
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var got []string
			o := &mcp.ClientOptions{LoggingMessageHandler: func(_ context.Context, req *mcp.LoggingMessageRequest) {
				b, _ := json.Marshal(req.Params.Data)
				mu.Lock()
				defer mu.Unlock()
				got = append(got, string(req.Params.Level)+" "+string(b))
			}}
			has := func(part string) bool {
				mu.Lock()
				defer mu.Unlock()
				return strings.Contains(strings.Join(got, "\n"), part)
			}
			cs := (*mcp.ClientSession)(nil)
			if endpoint == nil {
				cs = serveStdio(t, s, o)
			} else {
				var err error
				cs, err = mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, o).Connect(t.Context(), endpoint, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { cs.Close() })
			}
			if r := cs.InitializeResult(); (r.Capabilities.Logging != nil) != (r.ProtocolVersion < firstModern) {
				t.Errorf("version %s announces %+v", r.ProtocolVersion, r.Capabilities.Logging)
			}
			quiet := run(t, cs, "out secret\nsleep 1h", args{"wait_seconds": 0})
			callTool(t, cs, "stop_run", args{"run_id": quiet.RunID})
			if err := cs.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "info"}); err != nil {
				t.Fatal(err)
			}
			going := run(t, cs, "out secret\nsleep 100ms\nexit 3", args{"wait_seconds": 0})
			eventually(t, "the end of the run", func() bool { return has(`warning {"event":"run_ended","run_id":"` + going.RunID) })
			if err := cs.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "warning"}); err != nil {
				t.Fatal(err)
			}
			callTool(t, cs, "stop_sandbox", args{"sandbox_id": going.SandboxID})
			later := run(t, cs, "sleep 100ms\nexit 4", args{"wait_seconds": 0})
			eventually(t, "the end of the next run", func() bool { return has(later.RunID) })
			for _, part := range []string{quiet.RunID, "secret", "sandbox_stopped"} {
				if has(part) {
					t.Errorf("the notices have %s:\n%s", part, strings.Join(got, "\n"))
				}
			}
			if !has(`info {"event":"sandbox_started"`) {
				t.Errorf("no start:\n%s", strings.Join(got, "\n"))
			}
		})
	}
}

// TestNoLoggingWithoutSessions checks that the newest version, where logging is
// deprecated, announces none.
func TestNoLoggingWithoutSessions(t *testing.T) {
	s, _ := newTestServer(t, nil)
	cs := connectHTTP(t, serveHTTP(t, s), "alice", nil)
	res := cs.InitializeResult()
	if res.ProtocolVersion != firstModern || res.Capabilities.Logging != nil {
		t.Errorf("version %s announces %+v", res.ProtocolVersion, res.Capabilities.Logging)
	}
}
