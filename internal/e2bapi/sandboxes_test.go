package e2bapi

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestAgentVersion: a sandbox keeps the version of its guest, which a newer
// server does not change.
func TestAgentVersion(t *testing.T) {
	e, _, srv := newTest(t)
	_, _, body := do(t, "POST", srv.URL+"/sandboxes", `{"templateID":"base"}`, "X-API-KEY", "alice")
	var made sandboxAnswer
	if err := json.Unmarshal([]byte(body), &made); err != nil || made.EnvdVersion != AgentVersion {
		t.Fatalf("a new sandbox: %v, %s", err, body)
	}
	add := func(change func(*sandbox.Sandbox)) string { return sandbox.HostID(e.add("alice", change)) }
	want := map[string]string{
		made.SandboxID: AgentVersion,
		add(nil):       oldAgent, // of an earlier server, or another protocol
		add(func(sb *sandbox.Sandbox) { sb.Labels = map[string]string{labelAgent: "0.6.2"} }): "0.6.2",
		add(func(sb *sandbox.Sandbox) {
			sb.Labels, sb.Driver = map[string]string{labelAgent: AgentVersion}, cloudDriver
		}): oldAgent,
	}
	_, _, body = do(t, "GET", srv.URL+"/v2/sandboxes", "", "X-API-KEY", "alice")
	var list []entry
	if err := json.Unmarshal([]byte(body), &list); err != nil || len(list) != len(want) {
		t.Fatalf("list: %v, %s", err, body)
	}
	for _, sb := range list {
		if sb.EnvdVersion != want[sb.SandboxID] || sb.Metadata[labelAgent] != "" {
			t.Errorf("listed: %+v, want version %s", sb, want[sb.SandboxID])
		}
	}
	for id, version := range want {
		for path, method := range map[string]string{"": "GET", "/connect": "POST"} {
			_, _, body := do(t, method, srv.URL+"/sandboxes/"+id+path, `{"timeout":60}`, "X-API-KEY", "alice")
			var got struct{ EnvdVersion string }
			if err := json.Unmarshal([]byte(body), &got); err != nil || got.EnvdVersion != version {
				t.Errorf("%s %s: %v, %s; want version %s", method, path, err, body, version)
			}
		}
	}
}

// TestClient keeps the name of the client that made a sandbox, for the operator
// alone.
func TestClient(t *testing.T) {
	e, _, srv := newTest(t)
	for agent, want := range map[string]string{
		"e2b-js-sdk/2.51.0": "e2b-js-sdk/2.51.0", "a\tb\u00e9c": "abc", strings.Repeat("x", 100): strings.Repeat("x", 80),
	} {
		_, _, body := do(t, "POST", srv.URL+"/sandboxes", `{"metadata":{"a":"b"}}`, "X-API-KEY", "alice", "User-Agent", agent)
		made := decodeJSON[sandboxAnswer](t, body)
		if got := ClientOf(e.boxes[sandbox.CanonicalID(made.SandboxID)].Sandbox); got != want {
			t.Errorf("the client is %q, want %q", got, want)
		}
		if _, _, body := do(t, "GET", srv.URL+"/sandboxes/"+made.SandboxID, "", "X-API-KEY", "alice"); strings.Contains(body, "glovebox.e2b") {
			t.Errorf("the metadata has it, too: %s", body)
		}
	}
}
