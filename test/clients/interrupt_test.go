//go:build linux

package clients

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// interrupted has a user interrupt a client during a long call over HTTP, and returns
// what becomes of the run.
func interrupted(t *testing.T, binary string, c client, url, token string) string {
	t.Helper()
	goesOn := func(id string) bool {
		return strings.Contains(callTool(t, url, token, "run_command", map[string]any{
			"command": "kill -0 $(cat /tmp/pid) && echo it-goes-on", "sandbox_id": id,
		}), "it-goes-on")
	}
	var sandbox string
	converse(t, binary, c, conditions{url: url, token: token, interrupt: func(m *model, client func() error) func() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
				m.mu.Lock()
				if len(m.results) > 0 {
					sandbox = sandboxID.FindString(m.results[0].text)
				}
				m.mu.Unlock()
				if sandbox != "" && goesOn(sandbox) {
					if err := client(); err != nil {
						t.Error(err)
					}
					return
				}
			}
			t.Errorf("%s: the long call did not begin", c.title)
		}()
		return func() { <-done }
	}}, timeout()[:2])
	if t.Failed() {
		return ""
	}
	// A run that is being ended has some seconds for it.
	for range 50 {
		if !goesOn(sandbox) {
			return "the run ends"
		}
		time.Sleep(200 * time.Millisecond)
	}
	return "the run goes on"
}

// callTool calls a tool as a client of the newest version of the protocol, and returns
// the answer.
func callTool(t *testing.T, url, token, tool string, arguments map[string]any) string {
	t.Helper()
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{
		"name": tool, "arguments": arguments, "_meta": map[string]any{
			"io.modelcontextprotocol/protocolVersion":    "2026-07-28",
			"io.modelcontextprotocol/clientInfo":         map[string]any{"name": "test", "version": "1"},
			"io.modelcontextprotocol/clientCapabilities": map[string]any{},
		},
	}})
	if err != nil {
		t.Error(err)
		return ""
	}
	r, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(string(body)))
	if err != nil {
		t.Error(err)
		return ""
	}
	r.Header = http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Authorization": {"Bearer " + token},
		"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {tool},
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("%s: %s, %v: %s", tool, res.Status, err, answer)
	}
	return string(answer)
}
