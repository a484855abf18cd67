package mcpserver

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// maxSchemaTokens is DESIGN.md's budget for the schemas of all tools together,
// and what else a model reads of them: names and descriptions. Titles and
// annotations are for clients. A token is about four characters.
const maxSchemaTokens = 3000

func TestToolGoldens(t *testing.T) {
	s, _ := newTestServer(t, withFiles)
	cs := serveStdio(t, s, nil)
	list, err := cs.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	all, size := 0, 0
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
		wire, err := json.Marshal(tool)
		if err != nil {
			t.Fatal(err)
		}
		all += len(wire)
		size += len(tool.Name) + len(tool.Description)
		for _, schema := range []any{tool.InputSchema, tool.OutputSchema} {
			b, err := json.Marshal(schema)
			if err != nil {
				t.Fatal(err)
			}
			size += len(b)
		}
		got, err := json.MarshalIndent(tool, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, '\n')
		golden := filepath.Join("testdata", "tools", tool.Name+".json")
		if *update {
			if err := os.WriteFile(golden, got, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Errorf("%v: review the tool, then go test -update", err)
			continue
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s differs from its golden (-want +got):\n%s", tool.Name, diff)
		}
	}
	t.Logf("%d tools: about %d tokens in all, %d of them for models", len(list.Tools), all/4, size/4)
	if size/4 > maxSchemaTokens {
		t.Errorf("the tools take about %d tokens, more than %d", size/4, maxSchemaTokens)
	}
	goldens, err := filepath.Glob(filepath.Join("testdata", "tools", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range goldens {
		if name := strings.TrimSuffix(filepath.Base(g), ".json"); !slices.Contains(names, name) {
			t.Errorf("%s is the golden of no tool", g)
		}
	}
}

func TestNarrowedTools(t *testing.T) {
	names := func(change func(*Options)) []string {
		s, _ := newTestServer(t, change)
		list, err := serveStdio(t, s, nil).ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, tool := range list.Tools {
			names = append(names, tool.Name)
		}
		return names
	}
	got := names(func(o *Options) { o.Tools = []string{"run_code", "read_file"} })
	if diff := cmp.Diff([]string{"read_file", "run_code"}, got); diff != "" {
		t.Errorf("with Tools (-want +got):\n%s", diff)
	}
	got = names(func(o *Options) { o.ReadOnly = true })
	want := []string{"get_changes", "get_run", "get_sandbox", "list_files", "list_sandboxes", "list_workspaces", "read_file", "search_files"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("with ReadOnly (-want +got):\n%s", diff)
	}
	_, err := New(Options{Engine: newFakeEngine(), Log: testLog(t), Tools: []string{"run_cod"}})
	if !errors.Is(err, sandbox.Invalid) || !strings.Contains(sandbox.HintOf(err), "run_code") {
		t.Errorf("New with an unknown tool: %v, hint %q; want an invalid error that lists the tools", err, sandbox.HintOf(err))
	}
}

func TestRunVerdicts(t *testing.T) {
	s, _ := newTestServer(t, nil)
	cs := serveStdio(t, s, nil)
	for _, tt := range []struct {
		script  string
		code    sandbox.VerdictCode
		isError bool
		text    []string
	}{
		{"out 42", sandbox.OK, false, []string{"[ok, exit code 0, ", "]\nstdout:\n42\n"}},
		{"exit 0", sandbox.OK, false, []string{"[ok, exit code 0, ", "]\n(no output)"}},
		{"out a\nerr b\nexit 3", sandbox.Failed, true, []string{"[failed, exit code 3, ", "]\ncause: it exited with status 3\nnext step: read stderr\nstdout:\na\nstderr:\nb\n"}},
		{"verdict timeout", sandbox.Timeout, true, []string{"[timeout, ", "cause: as the script says"}},
		{"verdict out_of_memory", sandbox.OutOfMemory, true, []string{"[out_of_memory, "}},
		{"verdict disk_full", sandbox.DiskFull, true, []string{"[disk_full, "}},
		{"verdict too_many_processes", sandbox.TooManyProcesses, true, []string{"[too_many_processes, "}},
		{"verdict killed", sandbox.Killed, true, []string{"[killed, "}},
		{"verdict sandbox_lost", sandbox.SandboxLost, true, []string{"[sandbox_lost, "}},
	} {
		t.Run(tt.script, func(t *testing.T) {
			res := callTool(t, cs, "run_code", args{"code": tt.script})
			if res.IsError != tt.isError {
				t.Errorf("isError = %v, want %v", res.IsError, tt.isError)
			}
			r := structured[answer.Run](t, res)
			if r.Status != sandbox.RunFinished || r.Verdict == nil || r.Verdict.Code != tt.code {
				t.Errorf("status %q, verdict %+v; want finished, %s", r.Status, r.Verdict, tt.code)
			}
			if !sandbox.ValidRunID(r.RunID) || !sandbox.ValidID(r.SandboxID) {
				t.Errorf("run_id %q, sandbox_id %q: not ids", r.RunID, r.SandboxID)
			}
			for _, want := range append(tt.text, r.RunID+" in "+r.SandboxID) {
				if !strings.Contains(text(res), want) {
					t.Errorf("text lacks %q:\n%s", want, text(res))
				}
			}
		})
	}
}

func TestRunRequest(t *testing.T) {
	s, e := newTestServer(t, nil)
	cs := serveStdio(t, s, nil)
	first := run(t, cs, "out 1", args{"env": args{"K": "v"}, "timeout_seconds": 7, "image": "host"})
	want := sandbox.RunRequest{
		Code: "out 1", Language: "python", Context: sandbox.DefaultContext, Env: map[string]string{"K": "v"}, Plots: true, Timeout: 7 * time.Second,
		New: sandbox.CreateRequest{Image: "host"},
	}
	if diff := cmp.Diff(want, e.lastRequest()); diff != "" {
		t.Errorf("run_code asked the engine for (-want +got):\n%s", diff)
	}
	res := callTool(t, cs, "run_command", args{
		"command": []string{"out a", "out b"}, "sandbox_id": first.SandboxID, "cwd": "/tmp", "stdin": "in", "root": true, "wait_seconds": 5,
	})
	if r := structured[answer.Run](t, res); r.Stdout != "a\nb\n" || r.SandboxID != first.SandboxID {
		t.Errorf("run_command gave %q in %s, want both commands in %s", r.Stdout, r.SandboxID, first.SandboxID)
	}
	want = sandbox.RunRequest{Commands: []string{"out a", "out b"}, SandboxID: first.SandboxID, Dir: "/tmp", Stdin: []byte("in"), Root: true, Plots: true}
	if diff := cmp.Diff(want, e.lastRequest()); diff != "" {
		t.Errorf("run_command asked the engine for (-want +got):\n%s", diff)
	}
}

func TestArgumentErrors(t *testing.T) {
	s, e := newTestServer(t, nil)
	cs := serveStdio(t, s, nil)
	long := strings.Repeat("x", 500)
	for _, tt := range []struct {
		tool string
		args any
		want string
	}{
		{"run_code", args{}, "code: missing; it is required, as a string"},
		{"run_code", args{"code": nil}, "code: missing; it is required, as a string"},
		{"run_code", args{"code": 5}, "code: 5 is not a string"},
		{"run_code", args{"code": ""}, `code: "" is no program`},
		{"run_code", args{"code": "out", "Code": "x"}, `"Code": there is no such argument` + "\nhint: the arguments are code, context, env, idempotency_key, image,"},
		{"run_code", args{"code": "out", "timeout_seconds": "30"}, `timeout_seconds: "30" is not an integer of at least 0`},
		{"run_code", args{"code": "out", "timeout_seconds": -1}, "timeout_seconds: -1 is not an integer of at least 0"},
		{"run_code", args{"code": "out", "timeout_seconds": 1.5}, "timeout_seconds: 1.5 is not an integer"},
		{"run_code", args{"code": "out", "timeout_seconds": 1 << 60}, "timeout_seconds: 1152921504606846976 is more than ten years"},
		{"run_code", args{"code": "out", "wait_seconds": 601}, "wait_seconds: 601 is not an integer from 0 to 600"},
		{"run_code", args{"code": "out", "env": args{"A": 1}}, "env.A: 1 is not a string"},
		{"run_code", args{"code": "out", "env": []string{"A=1"}}, `env: ["A=1"] is not an object of names and strings`},
		{"run_code", args{"code": "out", "sandbox_id": "sbx_x", "image": "host"}, `image: "host" is for a new sandbox, but sandbox_id names one`},
		{"run_code", args{"code": "out", "sandbox_id": "sbx_x"}, `sandbox_id: there is no sandbox "sbx_x"` + "\nhint: list_sandboxes shows"},
		{"run_code", args{"code": "out", "language": "cobol"}, "language: this image has no \"cobol\"\nhint: it has python"},
		{"run_code", args{"code": "out", "output_bytes": 1}, "output_bytes: 1 is not an integer from 256 to 1048576"},
		{"run_code", args{"code": "out", "nonsense": long}, "there is no such argument"},
		{"run_code", args{"code": "fail exhausted"}, "start run: as the script says"},
		{"run_code", args{"code": "fail internal"}, "internal error: the request was fine, the server failed: start run: as the script says"},
		{"run_code", args{"code": "panic"}, "internal error"},
		{"run_command", args{"command": []any{"ls", 5}}, `command: ["ls",5] is not a string or an array of which each item is a string`},
		{"run_command", args{"command": []string{}}, "command: [] holds no command"},
		{"create_sandbox", args{"memory_mb": 1 << 50}, "memory_mb: 1125899906842624 is beyond any machine"},
		{"create_sandbox", args{"memory_mb": 8 << 10}, "memory: 8 GiB is above the server's maximum, 4 GiB\nhint: ask for less"},
		{"get_sandbox", args{"sandbox_id": "no"}, `there is no sandbox "no"`},
		{"stop_sandbox", args{"sandbox_id": "no"}, `there is no sandbox "no"`},
		{"get_run", args{"run_id": "no"}, `there is no run "no"`},
		{"get_run", args{"run_id": "no", "grep": "("}, "grep: error parsing regexp"},
		{"get_run", args{"run_id": "no", "stream": "stdlog"}, `stream: "stdlog" is not one of stdout and stderr`},
		{"stop_run", args{"run_id": "no"}, `there is no run "no"`},
		{"send_input", args{"run_id": "no", "text": ""}, `there is no run "no"`},
		{"read_file", args{"sandbox_id": "no", "path": "x"}, `there is no sandbox "no"`},
		{"write_file", args{"sandbox_id": "no", "path": "x", "content": "!", "encoding": "base64"}, "content: not base64 as encoding says"},
		{"list_files", args{"sandbox_id": "no"}, `there is no sandbox "no"`},
		{"run_code", json.RawMessage(`{"code":"` + long + "\xff" + `"}`), "arguments: not valid UTF-8"},
		{"run_code", json.RawMessage(`[]`), "arguments: [] is not a JSON object"},
		{"run_code", json.RawMessage(`{"code":"out","output_bytes":-1,"output_bytes":null}`), `"output_bytes": given twice`},
	} {
		res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: tt.tool, Arguments: tt.args})
		if err != nil {
			t.Errorf("%s %v: protocol error %v, want a tool error", tt.tool, tt.args, err)
			continue
		}
		if !res.IsError || !strings.Contains(text(res), tt.want) {
			t.Errorf("%s %v: isError %v, text %q; want an error with %q", tt.tool, tt.args, res.IsError, text(res), tt.want)
		}
		if strings.Contains(text(res), long[:100]) {
			t.Errorf("%s: the error repeats a long value: %s", tt.tool, text(res))
		}
	}
	_, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "run_cod"})
	if err == nil || !strings.Contains(err.Error(), "unknown tool") {
		t.Errorf("an unknown tool: %v, want a protocol error", err)
	}
	if n := len(e.sandboxes); n != 0 {
		t.Errorf("wrong calls made %d sandboxes", n)
	}
}

// TestInternalErrors shows what went wrong inside to the local user only.
func TestInternalErrors(t *testing.T) {
	s, _ := newTestServer(t, nil)
	cs := connectHTTP(t, serveHTTP(t, s), "alice", nil)
	for _, code := range []string{"fail internal", "panic"} {
		res := callTool(t, cs, "run_code", args{"code": code})
		if got := text(res); !res.IsError || strings.Contains(got, "script") || !strings.HasPrefix(got, "internal error") {
			t.Errorf("%s: isError %v, %q", code, res.IsError, got)
		}
	}
}

func TestSandboxTools(t *testing.T) {
	s, e := newTestServer(t, nil)
	cs := serveStdio(t, s, nil)
	if got := text(callTool(t, cs, "list_sandboxes", nil)); got != "There are no sandboxes." {
		t.Errorf("an empty list reads %q", got)
	}
	res := callTool(t, cs, "create_sandbox", args{
		"name": "box", "cpus": 0.5, "memory_mb": 256, "disk_mb": 100, "idle_seconds": 60, "lifetime_seconds": 3600, "env": args{"A": "b"},
	})
	sb := structured[sandboxResult](t, res)
	if sb.MemoryMB != 256 || sb.DiskMB != 100 || sb.CPUs != 0.5 || sb.Idle != 60 || sb.Lifetime != 3600 || len(sb.Receipt) == 0 {
		t.Errorf("create_sandbox gave %+v, want what was asked for and a receipt", sb)
	}
	if diff := cmp.Diff(map[string]string{"A": "b"}, e.creates[0].Env); diff != "" {
		t.Errorf("env (-want +got):\n%s", diff)
	}
	for _, want := range []string{sb.ID, `"box"`, "memory: 512 MiB, by a script", "cpu: NOT ENFORCED (asked: 1)"} {
		if !strings.Contains(text(res), want) {
			t.Errorf("text lacks %q:\n%s", want, text(res))
		}
	}
	if got := structured[sandboxResult](t, callTool(t, cs, "get_sandbox", args{"sandbox_id": sb.ID})); got.ID != sb.ID {
		t.Errorf("get_sandbox gave %+v", got)
	}
	res = callTool(t, cs, "get_sandbox", args{"sandbox_id": sb.ID})
	if !strings.Contains(text(res), "context default of python: 2 runs, busy") || len(structured[sandboxResult](t, res).Contexts) != 1 {
		t.Errorf("get_sandbox lacks the contexts: %s", text(res))
	}
	if got := text(callTool(t, cs, "stop_sandbox", args{"sandbox_id": sb.ID, "context": "default"})); got != "ended context default of python in "+sb.ID {
		t.Errorf("stop_sandbox of a context says %q", got)
	}
	for _, a := range []args{{"sandbox_id": sb.ID, "language": "python"}, {"sandbox_id": sb.ID, "context": "default", "language": "perl"}, {"sandbox_id": sb.ID, "context": ""}} {
		if res := callTool(t, cs, "stop_sandbox", a); !res.IsError {
			t.Errorf("stop_sandbox %v: %s", a, text(res))
		}
	}
	if got := text(callTool(t, cs, "list_sandboxes", nil)); !strings.Contains(got, sb.ID) {
		t.Errorf("list_sandboxes lacks %s: %s", sb.ID, got)
	}
	if got := text(callTool(t, cs, "stop_sandbox", args{"sandbox_id": sb.ID})); got != "stopped "+sb.ID {
		t.Errorf("stop_sandbox says %q", got)
	}
	res = callTool(t, cs, "run_code", args{"code": "out", "sandbox_id": sb.ID})
	if !res.IsError || !strings.Contains(text(res), "has stopped") {
		t.Errorf("a run in a stopped sandbox: %s", text(res))
	}
}

// TestListSandboxes lists those that a model can go on in, in a useful order.
func TestListSandboxes(t *testing.T) {
	s, e := newTestServer(t, nil)
	cs := serveStdio(t, s, nil)
	create := func() string {
		sb, err := e.Create(t.Context(), sandbox.Local, sandbox.CreateRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return sb.ID
	}
	own := run(t, cs, "out 1", nil).SandboxID
	older, newer, gone, sooner := create(), create(), create(), create()
	for _, id := range []string{sooner, gone} {
		if err := e.Stop(t.Context(), sandbox.Local, id); err != nil {
			t.Fatal(err)
		}
		e.sandboxes[id].Ended = time.Now()
	}
	type list struct {
		Sandboxes         []sandboxResult
		Stopped, Unlisted int
	}
	ids := func(l list) (ids []string) {
		for _, sb := range l.Sandboxes {
			ids = append(ids, sb.ID)
		}
		return ids
	}
	res := callTool(t, cs, "list_sandboxes", nil)
	got := structured[list](t, res)
	if diff := cmp.Diff([]string{own, newer, older}, ids(got)); diff != "" || got.Stopped != 2 || got.Unlisted != 0 {
		t.Errorf("%+v (-want +got):\n%s", got, diff)
	}
	if !strings.HasPrefix(text(res), own) || !strings.HasSuffix(text(res), "\nNot listed: 2 stopped; all=true lists them.") {
		t.Errorf("text: %s", text(res))
	}
	res = callTool(t, cs, "list_sandboxes", args{"all": true})
	got = structured[list](t, res)
	if diff := cmp.Diff([]string{own, newer, older, gone, sooner}, ids(got)); diff != "" || got.Stopped != 2 || strings.Contains(text(res), "ot listed") {
		t.Errorf("with all: %s (-want +got):\n%s", text(res), diff)
	}
	for range maxListed {
		create()
	}
	res = callTool(t, cs, "list_sandboxes", nil)
	got = structured[list](t, res)
	if len(got.Sandboxes) != maxListed || got.Sandboxes[0].ID != own || got.Unlisted != 3 || !strings.Contains(text(res), "\n3 more are not listed.\nNot listed: 2 stopped") {
		t.Errorf("%d sandboxes, %d unlisted: %s", len(got.Sandboxes), got.Unlisted, text(res))
	}
	e.mu.Lock()
	for _, sb := range e.sandboxes {
		sb.State = sandbox.Stopped
	}
	e.mu.Unlock()
	if got := text(callTool(t, cs, "list_sandboxes", nil)); got != "There are no live sandboxes.\nNot listed: 55 stopped; all=true lists them." {
		t.Errorf("without a live one: %s", got)
	}
}

func TestWorkspaceTools(t *testing.T) {
	s, _ := newTestServer(t, nil)
	cs := serveStdio(t, s, nil)
	name := "of " + string(sandbox.Local)
	if got := text(callTool(t, cs, "list_workspaces", nil)); got != `"`+name+`": 2 KiB in 3 files, in use` {
		t.Errorf("list_workspaces says %s", got)
	}
	res := callTool(t, cs, "list_workspaces", args{"workspace": name})
	list := structured[struct{ Workspaces []sandbox.Workspace }](t, res).Workspaces
	if len(list) != 1 || list[0].Usage.Files != 3 || !strings.Contains(text(res), "of at most 1 MiB") {
		t.Errorf("one workspace: %s", text(res))
	}
	for tool, what := range map[string]string{"list_workspaces": "other", "delete_workspace": "other"} {
		if res := callTool(t, cs, tool, args{"workspace": what}); !res.IsError || !strings.Contains(text(res), "there is no") {
			t.Errorf("%s of none: %s", tool, text(res))
		}
	}
	if res := callTool(t, cs, "delete_workspace", args{"workspace": name}); !res.IsError || !strings.Contains(text(res), "in use\nhint: ") {
		t.Errorf("delete_workspace of one in use: %s", text(res))
	}
}

func TestFileTools(t *testing.T) {
	s, _ := newTestServer(t, nil)
	cs := serveStdio(t, s, nil)
	id := structured[sandboxResult](t, callTool(t, cs, "create_sandbox", nil)).ID
	write := func(a args) {
		t.Helper()
		a["sandbox_id"] = id
		if res := callTool(t, cs, "write_file", a); res.IsError {
			t.Fatal(text(res))
		}
	}
	read := func(a args) (fileResult, *mcp.CallToolResult) {
		t.Helper()
		a["sandbox_id"] = id
		res := callTool(t, cs, "read_file", a)
		if res.IsError {
			return fileResult{}, res
		}
		return structured[fileResult](t, res), res
	}
	write(args{"path": "a.txt", "content": "grüß"})
	write(args{"path": "a.txt", "content": " dich", "append": true})
	write(args{"path": "b.bin", "content": "AP8=", "encoding": "base64"})
	write(args{"path": "empty", "content": ""})

	if r, res := read(args{"path": "a.txt"}); r.Content != "grüß dich" || r.Encoding != "utf-8" || r.Size != 11 || text(res) != "grüß dich" {
		t.Errorf("a.txt is %+v, %q", r, text(res))
	}
	// Two bytes of "grü" cut the ü: it comes with the next part.
	r, res := read(args{"path": "a.txt", "limit": 3})
	if r.Content != "gr" || r.Next != 2 || !strings.Contains(text(res), "read on at offset 2") {
		t.Errorf("the first part of a.txt is %+v, %q", r, text(res))
	}
	if r, _ := read(args{"path": "a.txt", "offset": r.Next}); r.Content != "üß dich" || r.Next != 0 {
		t.Errorf("the rest of a.txt is %+v", r)
	}
	if r, _ := read(args{"path": "b.bin"}); r.Content != "AP8=" || r.Encoding != "base64" {
		t.Errorf("b.bin is %+v, want base64", r)
	}
	if _, res := read(args{"path": "b.bin", "encoding": "utf-8"}); !res.IsError || !strings.Contains(text(res), "hint: read it with encoding base64") {
		t.Errorf("b.bin as utf-8: %s", text(res))
	}
	if _, res := read(args{"path": "empty"}); text(res) != "[empty is empty]" {
		t.Errorf("an empty file reads %q", text(res))
	}
	if _, res := read(args{"path": "a.txt", "offset": 99}); text(res) != "[a.txt has 11 bytes, none from 99 on]" {
		t.Errorf("beyond the end reads %q", text(res))
	}
	if _, res := read(args{"path": "none"}); !res.IsError {
		t.Error("a file that is not there could be read")
	}
	list := callTool(t, cs, "list_files", args{"sandbox_id": id})
	if got := text(list); !strings.Contains(got, "      11 /data/a.txt") || !strings.Contains(got, "/data/b.bin") {
		t.Errorf("list_files reads:\n%s", got)
	}
}

func TestScopes(t *testing.T) {
	s, _ := newTestServer(t, nil)
	url := serveHTTP(t, s)
	files := connectHTTP(t, url, "alice/files", nil)
	list, err := files.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	if diff := cmp.Diff([]string{"delete_workspace", "edit_file", "get_changes", "list_files", "list_workspaces", "read_file", "search_files", "write_file"}, names); diff != "" {
		t.Errorf("tools with the scope files (-want +got):\n%s", diff)
	}
	if res := callTool(t, files, "run_code", args{"code": "out"}); !res.IsError || !strings.Contains(text(res), `lacks the scope "run"`) {
		t.Errorf("run_code without its scope: %s", text(res))
	}
	admin := connectHTTP(t, url, "alice/"+string(auth.ScopeAdmin), nil)
	if res := callTool(t, admin, "run_code", args{"code": "out"}); res.IsError {
		t.Errorf("run_code with the scope admin: %s", text(res))
	}
}

// TestAnnotations has the hints of each tool in one table. Clients ask their users,
// or refuse, by these hints.
func TestAnnotations(t *testing.T) {
	const readOnly, changes, destructive = "read-only", "changes", "destructive"
	want := map[string]string{
		"run_code": changes, "run_command": changes, "get_run": readOnly, "stop_run": changes, "send_input": changes,
		"create_sandbox": changes, "get_sandbox": readOnly, "list_sandboxes": readOnly, "set_network": destructive, "stop_sandbox": destructive,
		"write_file": changes, "edit_file": changes, "read_file": readOnly, "list_files": readOnly, "search_files": readOnly, "get_changes": readOnly, "snapshot": destructive,
		"install_packages": changes, "list_languages": changes,
		"list_workspaces": readOnly, "delete_workspace": destructive,
		"file_url": changes, "preview_url": changes, "copy_in": changes, "copy_out": destructive,
	}
	programs := []string{"install_packages", "run_code", "run_command", "send_input"}
	for _, internet := range []bool{false, true} {
		s, _ := newTestServer(t, func(o *Options) { withFiles(o); o.Internet = internet })
		list, err := serveStdio(t, s, nil).ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		var open []string
		for _, tool := range list.Tools {
			a := tool.Annotations
			switch {
			case a.ReadOnlyHint:
				got[tool.Name] = readOnly
			case *a.DestructiveHint:
				got[tool.Name] = destructive
			default:
				got[tool.Name] = changes
			}
			if *a.OpenWorldHint {
				open = append(open, tool.Name)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("hints (-want +got):\n%s", diff)
		}
		if internet && !slices.Equal(open, programs) || !internet && open != nil {
			t.Errorf("with the internet %v, of an open world are %v", internet, open)
		}
	}
}

// TestReadOnlyFileURL signs no URL that changes a file for a client that may
// change nothing.
func TestReadOnlyFileURL(t *testing.T) {
	s, _ := newTestServer(t, func(o *Options) { withFiles(o); o.ReadOnly = true })
	cs := serveStdio(t, s, nil)
	if res := callTool(t, cs, "file_url", args{"path": "f", "workspace": "w"}); res.IsError {
		t.Errorf("GET: %s", text(res))
	}
	if res := callTool(t, cs, "file_url", args{"path": "f", "workspace": "w", "method": "PUT"}); !res.IsError {
		t.Errorf("PUT: %s", text(res))
	}
}
