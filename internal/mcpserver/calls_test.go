package mcpserver

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// logLines returns a logger, and a function that returns the attributes of the
// lines "tool" of what it logged, without their durations.
func logLines() (*slog.Logger, func() []map[string]string) {
	var b bytes.Buffer
	log := slog.New(slog.NewTextHandler(&b, nil)) // info, as operators set it
	return log, func() []map[string]string {
		var lines []map[string]string
		for line := range strings.Lines(b.String()) {
			attributes := map[string]string{}
			for _, field := range strings.Fields(line) {
				name, value, _ := strings.Cut(field, "=")
				attributes[name] = value
			}
			if attributes["msg"] == "tool" {
				for _, name := range []string{"time", "level", "msg", "duration"} {
					if attributes[name] == "" {
						lines = append(lines, map[string]string{"missing": name})
					}
					delete(attributes, name)
				}
				lines = append(lines, attributes)
			}
		}
		return lines
	}
}

// TestToolLog reads the log of an operator who wants to know who did what.
func TestToolLog(t *testing.T) {
	log, lines := logLines()
	s, _ := newTestServer(t, func(o *Options) { o.Log = log })
	url := serveHTTP(t, s)
	alice, bob := connectHTTP(t, url, "alice", nil), connectHTTP(t, url, "bob/files", nil)

	ok := run(t, alice, "out 1", nil)
	failed := structured[runResult](t, callTool(t, alice, "run_command", args{"command": "exit 3", "sandbox_id": ok.SandboxID}))
	going := run(t, alice, "sleep 1h", args{"sandbox_id": ok.SandboxID, "wait_seconds": 0})
	callTool(t, alice, "stop_run", args{"run_id": going.RunID})
	made := structured[sandboxResult](t, callTool(t, alice, "create_sandbox", nil))
	callTool(t, alice, "write_file", args{"sandbox_id": made.ID, "path": "f", "content": "secret"})
	callTool(t, bob, "read_file", args{"sandbox_id": made.ID, "path": "f"})
	callTool(t, bob, "run_code", args{"code": "secret"})
	callTool(t, alice, "get_sandbox", args{"sandbox_id": "secret"})
	callTool(t, alice, "run_code", args{"code": "fail exhausted"})

	line := func(tool, principal, sandboxID, runID, verdict, kind string) map[string]string {
		quote := func(s string) string {
			if s == "" {
				return `""`
			}
			return s
		}
		return map[string]string{
			"tool": tool, "principal": principal, "sandbox": quote(sandboxID), "run": quote(runID), "verdict": quote(verdict), "error": quote(kind),
		}
	}
	want := []map[string]string{
		line("run_code", "alice", ok.SandboxID, ok.RunID, "ok", ""),
		line("run_command", "alice", ok.SandboxID, failed.RunID, "failed", ""),
		line("run_code", "alice", ok.SandboxID, going.RunID, "", ""),
		line("stop_run", "alice", ok.SandboxID, going.RunID, "cancelled", ""),
		line("create_sandbox", "alice", made.ID, "", "", ""),
		line("write_file", "alice", made.ID, "", "", ""),
		line("read_file", "bob", made.ID, "", "", "not_found"),
		line("run_code", "bob", "", "", "", "forbidden"),
		line("get_sandbox", "alice", "", "", "", "not_found"),
		line("run_code", "alice", "", "", "", "exhausted"),
	}
	if diff := cmp.Diff(want, lines()); diff != "" {
		t.Errorf("lines of the log (-want +got):\n%s", diff)
	}
}
