package mcpserver

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/transport"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
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
	failed := structured[answer.Run](t, callTool(t, alice, "run_command", args{"command": "exit 3", "sandbox_id": ok.SandboxID}))
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

// TestFilesMakeASandbox puts a file into a sandbox that the call makes.
func TestFilesMakeASandbox(t *testing.T) {
	s, e := newTestServer(t, withFiles)
	cs := serveStdio(t, s, nil)
	res := callTool(t, cs, "write_file", args{"path": "a.csv", "content": "1,2"})
	id := structured[struct {
		ID string `json:"sandbox_id"`
	}](t, res).ID
	if want := "wrote 3 bytes to a.csv\nThe new sandbox is " + id + ": give this sandbox_id in the next calls."; !sandbox.ValidID(id) || text(res) != want {
		t.Errorf("write_file: %q in %q; want %q", text(res), id, want)
	}
	if got := text(callTool(t, cs, "read_file", args{"sandbox_id": id, "path": "a.csv"})); got != "1,2" {
		t.Errorf("the file reads %q", got)
	}
	if got := text(callTool(t, cs, "write_file", args{"sandbox_id": id, "path": "b", "content": ""})); got != "wrote 0 bytes to b" {
		t.Errorf("write_file into a sandbox that is there: %q", got)
	}
	res = callTool(t, cs, "copy_in", args{"host_path": "/home/me", "path": "x"})
	copied := structured[struct {
		ID    string `json:"sandbox_id"`
		Files int    `json:"files"`
	}](t, res)
	if !strings.Contains(text(res), "The new sandbox is "+copied.ID) || copied.Files != 2 || copied.ID == id {
		t.Errorf("copy_in: %q, %+v", text(res), copied)
	}

	// A sandbox of which no caller knows is stopped.
	for tool, a := range map[string]args{
		"write_file": {"path": "/refused", "content": "x"},
		"copy_in":    {"host_path": "/refused", "path": "x"},
	} {
		before := live(t, e, sandbox.Local)
		res := callTool(t, cs, tool, a)
		if !res.IsError || !strings.Contains(text(res), "refused") || live(t, e, sandbox.Local) != before {
			t.Errorf("%s that fails: %q; %d live sandboxes, want %d", tool, text(res), live(t, e, sandbox.Local), before)
		}
	}
}

// TestFilesNeedARightToMakeASandbox refuses a token that may write files, but not
// make a sandbox.
func TestFilesNeedARightToMakeASandbox(t *testing.T) {
	s, e := newTestServer(t, nil)
	cs := connectHTTP(t, serveHTTP(t, s), "alice/files", nil)
	res := callTool(t, cs, "write_file", args{"path": "f", "content": "x"})
	if !res.IsError || !strings.Contains(text(res), `lacks the scope "run"`) || live(t, e, "alice") != 0 {
		t.Errorf("write_file without the scope run: %q, %d sandboxes", text(res), live(t, e, "alice"))
	}
}

// TestMissingSandbox tells a caller that names no sandbox where to get one.
func TestMissingSandbox(t *testing.T) {
	s, _ := newTestServer(t, withFiles)
	cs := serveStdio(t, s, nil)
	for tool, a := range map[string]args{
		"read_file": {"path": "f"}, "list_files": nil, "get_sandbox": nil, "stop_sandbox": nil,
		"set_network": {"network": "none"}, "preview_url": {"port": 80}, "copy_out": {"path": "f", "host_path": "/f"},
	} {
		res := callTool(t, cs, tool, a)
		hint, message := "list_sandboxes lists sandboxes, and create_sandbox makes one", "sandbox_id: missing; it is required, as a string"
		if !res.IsError || text(res) != message+"\nhint: "+hint {
			t.Errorf("%s: %q", tool, text(res))
		}
		if diff := cmp.Diff(sandbox.Problem{Kind: sandbox.Invalid, Message: message, Argument: "sandbox_id", Hint: hint}, structured[sandbox.Problem](t, res)); diff != "" {
			t.Errorf("%s, structuredContent (-want +got):\n%s", tool, diff)
		}
	}
}

// live counts the sandboxes of a principal that have not stopped.
func live(t *testing.T, e *fakeEngine, p sandbox.Principal) (n int) {
	t.Helper()
	list, err := e.List(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	for _, sb := range list {
		if sb.State != sandbox.Stopped {
			n++
		}
	}
	return n
}

// TestNewSandboxHint misses a variable or a file in a sandbox that the call made.
func TestNewSandboxHint(t *testing.T) {
	s, e := newTestServer(t, nil)
	url := serveHTTP(t, s)
	session := func() func(tool string, a args) (answer.Run, string) {
		id := openSession(t, url, "alice")
		return func(tool string, a args) (answer.Run, string) { return callInSession(t, url, "alice", id, tool, a) }
	}
	one, other := session(), session()

	check := func(name, want string, r answer.Run, text string) {
		t.Helper()
		if r.Verdict == nil || r.Verdict.NextStep != want {
			t.Errorf("%s: verdict %+v; want the next step %q", name, r.Verdict, want)
		}
		if shown := strings.Contains(text, "next step: "+want); want != "" && !shown || want == "" && strings.Contains(text, "new sandbox") {
			t.Errorf("%s: the text does not agree: %s", name, text)
		}
	}
	first, shown := one("run_code", args{"code": "undefined df"})
	check("no earlier one", "this is a new sandbox, as for each call without sandbox_id; give sandbox_id "+first.SandboxID+" to go on in it", first, shown)
	again, shown := one("get_run", args{"run_id": first.RunID})
	check("get_run", first.Verdict.NextStep, again, shown)
	r, shown := one("run_code", args{"code": "undefined df", "sandbox_id": first.SandboxID})
	check("a sandbox that the caller named", "", r, shown)
	r, shown = one("run_code", args{"code": "raise boom"})
	check("another exception", "", r, shown)
	if err := e.Stop(t.Context(), "alice", r.SandboxID); err != nil {
		t.Fatal(err)
	}
	second, shown := one("run_code", args{"code": "undefined df"})
	check("one that lives", "this is a new sandbox; give sandbox_id "+first.SandboxID+" to go on in the earlier one", second, shown)
	r, shown = one("run_command", args{"command": []string{"err cat: sales.csv: No such file or directory", "verdict failed"}})
	check("a file, and two that live", "this is a new sandbox; give the sandbox_id of an earlier one to go on there: "+second.SandboxID+", "+first.SandboxID, r, shown)
	r, shown = one("run_command", args{"command": []string{"err cat: sales.csv: No such file or directory", "exit 1"}})
	check("the engine knows a next step", "read stderr", r, shown)

	r, shown = other("run_code", args{"code": "undefined df"})
	check("another session", "this is a new sandbox, as for each call without sandbox_id; give sandbox_id "+r.SandboxID+" to go on in it", r, shown)
	for range 3 {
		other("run_code", args{"code": "out 1"})
	}
	r, _ = other("run_code", args{"code": "undefined df"})
	if n := strings.Count(r.Verdict.NextStep, "sbx_"); n != 3 {
		t.Errorf("%d sandboxes are named, want 3: %s", n, r.Verdict.NextStep)
	}
}

// callInSession calls a tool that returns a run, in a session of Streamable HTTP.
func callInSession(t *testing.T, url, token, session, tool string, a args) (answer.Run, string) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": args{"name": tool, "arguments": a}})
	if err != nil {
		t.Fatal(err)
	}
	res := post(t, url+transport.StreamablePath, token, string(body), sessionHeader, session)
	stream, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var m struct{ Result mcp.CallToolResult }
	for line := range strings.Lines(string(stream)) {
		if data, ok := strings.CutPrefix(line, "data: "); ok && strings.Contains(data, `"result"`) {
			if err := json.Unmarshal([]byte(data), &m); err != nil {
				t.Fatal(err)
			}
		}
	}
	return structured[answer.Run](t, &m.Result), text(&m.Result)
}
