package app

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A caller calls MCP over HTTP with one token.
type caller struct {
	t          testing.TB
	url, token string
	client     *http.Client
}

// call returns the answer's result or error as it is on the wire.
func (c caller) call(method string, params map[string]any) string {
	c.t.Helper()
	answer, err := c.try(method, params)
	if err != nil {
		c.t.Fatal(err)
	}
	return answer
}

// try is call for a server that may die. The error is of an answer that did not come.
func (c caller) try(method string, params map[string]any) (string, error) {
	all := map[string]any{"_meta": map[string]any{
		"io.modelcontextprotocol/protocolVersion":    "2026-07-28",
		"io.modelcontextprotocol/clientCapabilities": map[string]any{"extensions": map[string]any{"io.modelcontextprotocol/tasks": map[string]any{}}},
	}}
	name := ""
	for k, v := range params {
		all[k] = v
		if text, ok := v.(string); ok && (k == "name" || k == "uri" || k == "taskId") {
			name = text
		}
	}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": all})
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.url+"/mcp", strings.NewReader(string(body)))
	if err != nil {
		return "", err
	}
	for k, v := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": "Bearer " + c.token,
		"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": name,
	} {
		if v != "" {
			req.Header.Set(k, v)
		}
	}
	res, err := c.client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return "", err
	}
	// The answer is the last message of the stream.
	answer := string(text)
	if i := strings.LastIndex(answer, "data: "); i >= 0 {
		answer = answer[i+len("data: "):]
	}
	return strings.TrimSpace(answer), nil
}

func (c caller) tool(name string, arguments map[string]any) string {
	c.t.Helper()
	return c.call("tools/call", map[string]any{"name": name, "arguments": arguments})
}

// result decodes the structuredContent of a tool's answer.
func (c caller) result(answer string, v any) {
	c.t.Helper()
	var m struct {
		Result struct {
			Structured json.RawMessage `json:"structuredContent"`
		}
	}
	if err := json.Unmarshal([]byte(answer), &m); err != nil {
		c.t.Fatalf("%v: %s", err, answer)
	}
	if err := json.Unmarshal(m.Result.Structured, v); err != nil {
		c.t.Fatalf("%v: %s", err, answer)
	}
}

// lockedBuilder is a log that is read while it is written.
type lockedBuilder struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuilder) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuilder) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestOthersDoNotExist walks every tool and resource of the whole server as
// another principal: what is answered about somebody else's is what is
// answered about what never was.
func TestOthersDoNotExist(t *testing.T) {
	log := &lockedBuilder{}
	texts := map[string]string{}
	sys, url := serveHTTP(t, func(o *Options) {
		o.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		tokens, err := OpenTokens(t.Context(), o.Config)
		if err != nil {
			t.Fatal(err)
		}
		defer tokens.Close()
		for _, name := range []string{"alice", "mallory"} {
			text, _, err := tokens.Create(t.Context(), name, []string{"run", "files", "admin"})
			if err != nil {
				t.Fatal(err)
			}
			texts[name] = text
		}
	})
	alice, mallory := caller{t, url, texts["alice"], http.DefaultClient}, caller{t, url, texts["mallory"], http.DefaultClient}

	// Alice has a sandbox with a run that goes on, one that ended, and a file.
	var run struct {
		RunID     string `json:"run_id"`
		SandboxID string `json:"sandbox_id"`
	}
	alice.result(alice.tool("run_command", map[string]any{
		"command": "echo hush-output; cat", "wait_seconds": 1,
		"env": map[string]any{"KEY": "hush-value"},
	}), &run)
	// And one in a context, with a result.
	var shown struct {
		RunID string `json:"run_id"`
	}
	alice.result(alice.tool("run_code", map[string]any{"code": "'hush-result'", "sandbox_id": run.SandboxID}), &shown)
	// And a workspace.
	identity, err := sys.auth.Verify(t.Context(), texts["alice"])
	if err != nil {
		t.Fatal(err)
	}
	if err := sys.Engine.ImportWorkspace(t.Context(), identity.Principal, "w", bytes.NewReader(tarOf(t, map[string]string{"hush": "hush"}))); err != nil {
		t.Fatal(err)
	}
	path := t.TempDir() + "/f"
	if a := alice.tool("write_file", map[string]any{"sandbox_id": run.SandboxID, "path": path, "content": "hush-content"}); strings.Contains(a, `"isError":true`) {
		t.Fatal(a)
	}
	none, noRun := sandbox.NewID(), sandbox.NewRunID()

	arguments := func(box, run string) map[string]map[string]any {
		return map[string]map[string]any{
			"run_code":         {"code": "print(1)", "sandbox_id": box},
			"run_command":      {"command": "true", "sandbox_id": box},
			"get_run":          {"run_id": run, "stream": "stdout"},
			"stop_run":         {"run_id": run},
			"send_input":       {"run_id": run, "text": "x\n"},
			"get_sandbox":      {"sandbox_id": box},
			"install_packages": {"sandbox_id": box, "packages": []string{"/none.whl"}},
			"list_languages":   {"sandbox_id": box},
			"stop_sandbox":     {"sandbox_id": box},
			"snapshot":         {"action": "take", "sandbox_id": box},
			"set_network":      {"sandbox_id": box, "network": "none"},
			"preview_url":      {"sandbox_id": box, "port": 8000},
			"write_file":       {"sandbox_id": box, "path": path, "content": "x"},
			"read_file":        {"sandbox_id": box, "path": path},
			"edit_file":        {"sandbox_id": box, "path": path, "old_string": "hush", "new_string": "x"},
			"list_files":       {"sandbox_id": box, "path": t.TempDir()},
			"get_changes":      {"sandbox_id": box},
			"search_files":     {"sandbox_id": box, "path": t.TempDir(), "pattern": "hush"},
			"file_url":         {"sandbox_id": box, "path": "f"},
			"create_sandbox":   {},
			"list_sandboxes":   {},
			"list_workspaces":  {},
			"delete_workspace": {"workspace": "w"},
		}
	}
	// check has two answers that may differ in names alone.
	check := func(what, theirs, nobodys string) {
		t.Helper()
		if strings.Contains(theirs, "hush") {
			t.Errorf("%s tells: %s", what, theirs)
		}
		theirs = strings.NewReplacer(run.SandboxID, none, run.RunID, noRun, shown.RunID, noRun).Replace(theirs)
		if theirs != nobodys {
			t.Errorf("%s of another's:\n%s\nof what there is not:\n%s", what, theirs, nobodys)
		}
		if !strings.Contains(nobodys, "there is no ") && !strings.Contains(strings.ToLower(nobodys), "not found") {
			t.Errorf("%s of what there is not: %s", what, nobodys)
		}
	}

	var list struct {
		Result struct {
			Tools   []struct{ Name string }
			Prompts []struct {
				Name      string
				Arguments []struct{ Name string }
			}
			ResourceTemplates []struct {
				Template string `json:"uriTemplate"`
			}
		}
	}
	decode := func(text string) {
		t.Helper()
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	decode(mallory.call("tools/list", nil))
	decode(mallory.call("resources/templates/list", nil))
	if len(list.Result.Tools) == 0 || len(list.Result.ResourceTemplates) == 0 {
		t.Fatalf("nothing to walk: %+v", list)
	}
	theirs, nobodys := arguments(run.SandboxID, run.RunID), arguments(none, noRun)
	for _, tool := range list.Result.Tools {
		switch a, ok := theirs[tool.Name]; {
		case !ok:
			t.Errorf("%s is not tried as another principal", tool.Name)
		case len(a) == 0:
			if got := mallory.tool(tool.Name, a); strings.Contains(got, run.SandboxID) || strings.Contains(got, "hush") {
				t.Errorf("%s tells: %s", tool.Name, got)
			}
		default:
			check(tool.Name, mallory.tool(tool.Name, a), mallory.tool(tool.Name, nobodys[tool.Name]))
		}
	}
	for _, template := range list.Result.ResourceTemplates {
		uri := func(box, run string) string {
			id := box
			if strings.HasPrefix(template.Template, "run:") {
				id = run
			}
			if strings.Contains(template.Template, "/results/") && id != noRun {
				id = shown.RunID
			}
			return strings.NewReplacer("{id}", id, "{number}", "0", "{+type}", "text/plain", "{+path}", strings.TrimPrefix(path, "/")).Replace(template.Template)
		}
		theirs, nobodys := map[string]any{"uri": uri(run.SandboxID, run.RunID)}, map[string]any{"uri": uri(none, noRun)}
		if got := alice.call("resources/read", theirs); !strings.Contains(got, "hush") {
			t.Errorf("%s for its owner: %s", template.Template, got)
		}
		check(template.Template, mallory.call("resources/read", theirs), mallory.call("resources/read", nobodys))
		for argument, value := range map[string]string{"id": "", "path": strings.TrimPrefix(path, "/")[:5]} {
			got := mallory.call("completion/complete", map[string]any{
				"ref":      map[string]any{"type": "ref/resource", "uri": template.Template},
				"argument": map[string]any{"name": argument, "value": value},
				"context":  map[string]any{"arguments": map[string]any{"id": run.SandboxID}},
			})
			if strings.Contains(got, run.SandboxID) || strings.Contains(got, run.RunID) || strings.Contains(got, "hush") {
				t.Errorf("completion of %s in %s tells: %s", argument, template.Template, got)
			}
		}
	}
	// The list of runs, and the prompts with their completion.
	if got := alice.tool("get_run", map[string]any{}); !strings.Contains(got, run.RunID) || !strings.Contains(got, "hush") {
		t.Errorf("get_run lists for the owner of the runs: %s", got)
	}
	if got := mallory.tool("get_run", map[string]any{}); strings.Contains(got, "run_") && !strings.Contains(got, "There are no runs.") || strings.Contains(got, "hush") {
		t.Errorf("get_run lists: %s", got)
	}
	decode(mallory.call("prompts/list", nil))
	if len(list.Result.Prompts) == 0 {
		t.Error("there are no prompts to walk")
	}
	for _, prompt := range list.Result.Prompts {
		given := func(run, workspace string) map[string]any {
			all := map[string]any{"run_id": run, "workspace": workspace, "path": "hus", "source": "hus"}
			some := map[string]any{}
			for _, a := range prompt.Arguments {
				if v, ok := all[a.Name]; ok {
					some[a.Name] = v
				}
			}
			return map[string]any{"name": prompt.Name, "arguments": some}
		}
		theirs := mallory.call("prompts/get", given(run.RunID, "w"))
		nobodys := mallory.call("prompts/get", given(noRun, "none"))
		check(prompt.Name, strings.ReplaceAll(theirs, `\"w\"`, `\"none\"`), nobodys)
		for _, a := range prompt.Arguments {
			got := mallory.call("completion/complete", map[string]any{
				"ref":      map[string]any{"type": "ref/prompt", "name": prompt.Name},
				"argument": map[string]any{"name": a.Name, "value": ""},
				"context":  map[string]any{"arguments": map[string]any{"workspace": "w"}},
			})
			if !strings.Contains(got, `"values":[]`) {
				t.Errorf("completion of %s of %s tells: %s", a.Name, prompt.Name, got)
			}
		}
	}
	for _, method := range []string{"tasks/get", "tasks/cancel"} {
		check(method, mallory.call(method, map[string]any{"taskId": run.RunID}), mallory.call(method, map[string]any{"taskId": noRun}))
	}

	// All of it has changed nothing, and the log tells nothing.
	if got := alice.tool("get_run", map[string]any{"run_id": run.RunID}); !strings.Contains(got, `"status":"running"`) {
		t.Errorf("alice's run: %s", got)
	}
	if got := alice.tool("read_file", map[string]any{"sandbox_id": run.SandboxID, "path": path}); !strings.Contains(got, "hush-content") {
		t.Errorf("alice's file: %s", got)
	}
	if text := log.String(); strings.Contains(text, "hush") || strings.Contains(text, alice.token) {
		t.Errorf("the log tells what is alice's:\n%s", text)
	}
	if got := alice.tool("list_workspaces", map[string]any{"workspace": "w"}); !strings.Contains(got, `"files":1`) {
		t.Errorf("alice's workspace: %s", got)
	}
	alice.tool("stop_sandbox", map[string]any{"sandbox_id": run.SandboxID})
}
