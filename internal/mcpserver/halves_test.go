package mcpserver

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestHalvesAreComplete compares what the two halves of a result say.
func TestHalvesAreComplete(t *testing.T) {
	s, _ := newTestServer(t, withFiles)
	cs := serveStdio(t, s, nil)
	long := strings.Repeat("x", answer.MaxText+1)
	for _, tt := range []struct {
		name, tool string
		args       args
		want       []string // in both
	}{
		{"Running", "run_code", args{"code": "sleep 1h", "wait_seconds": 0}, []string{"The run goes on. get_run with its run_id"}},
		{"Cut", "run_code", args{"code": "repeat 5000 line"}, []string{"goes on where the output was cut"}},
		{"Memory", "run_code", args{"code": "verdict out_of_memory"}, []string{"as the script says"}},
		{"Picture", "run_code", args{"code": `show image/png "none"`}, []string{"picture 0 is not shown: it is no picture of the type image/png"}},
		{"Value", "run_code", args{"code": "value " + long}, []string{"xxxx", "... (all of it: run://"}},
		{"Chart", "run_code", args{"code": `show application/vnd.glovebox.chart+json {"type":"line","title":null,"x":[1,null]}`}, []string{"line"}},
		{"New", "write_file", args{"path": "a", "content": "b"}, []string{"give this sandbox_id in the next calls"}},
		{"Preview", "preview_url", args{"port": 80}, []string{"for everyone who has the address"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.tool == "preview_url" {
				tt.args["sandbox_id"] = run(t, cs, "out 1", nil).SandboxID
			}
			res := callTool(t, cs, tt.tool, tt.args)
			b, err := json.Marshal(res.StructuredContent)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range tt.want {
				if !strings.Contains(text(res), want) || !strings.Contains(string(b), want) {
					t.Errorf("%q is not in both halves:\n%.2000s\n%.2000s", want, text(res), b)
				}
			}
			if empty := emptyFields("", res.StructuredContent); len(empty) > 0 {
				t.Errorf("empty fields %q in %.2000s", empty, b)
			}
		})
	}
}

// emptyFields returns the members of objects that are empty texts, nulls, empty lists
// or empty objects.
func emptyFields(name string, v any) (empty []string) {
	switch v := v.(type) {
	case nil:
		return []string{name}
	case string:
		if v == "" {
			return []string{name}
		}
	case map[string]any:
		if len(v) == 0 {
			return []string{name}
		}
		for member, value := range v {
			empty = append(empty, emptyFields(name+"."+member, value)...)
		}
	case []any:
		if len(v) == 0 {
			return []string{name}
		}
		for _, value := range v {
			if value != nil { // the data of a chart may have gaps
				empty = append(empty, emptyFields(name, value)...)
			}
		}
	}
	return empty
}

// TestUnknownIsLeftOut does not show zero for what is not known.
func TestUnknownIsLeftOut(t *testing.T) {
	r := answer.NewRun(sandbox.Run{ID: "run_x", SandboxID: "sbx_x", Network: &sandbox.RunNetwork{}}, sandbox.Output{}, sandbox.Run{}.Started)
	res, err := r.Render()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(`{"run_id":"run_x","sandbox_id":"sbx_x","status":"","duration_ms":0}`, string(res.StructuredContent.(json.RawMessage))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestForms shows a run that failed and has a picture to clients that drop a half.
func TestForms(t *testing.T) {
	for name, want := range map[string]struct{ structured, isError bool }{
		"unknown":                  {true, true},
		"claude-code":              {true, false},
		"codex-mcp-client":         {false, true},
		"gemini-cli-mcp-client-gb": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := newTestServer(t, nil)
			cs := serveStdioAs(t, s, name, nil)
			list, err := cs.ListTools(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			schemas := 0
			for _, tool := range list.Tools {
				if tool.OutputSchema != nil {
					schemas++
				}
			}
			if (schemas > 0) != want.structured {
				t.Errorf("%d tools with an output schema", schemas)
			}
			res := callTool(t, cs, "run_code", args{"code": "show image/png " + quoted(painted(t, 2, 2)) + "\nexit 3"})
			pictures := 0
			for _, c := range res.Content {
				if _, ok := c.(*mcp.ImageContent); ok {
					pictures++
				}
			}
			if pictures != 1 || !strings.HasPrefix(text(res), "[failed, exit code 3") {
				t.Errorf("%d pictures; %s", pictures, text(res))
			}
			if (res.StructuredContent != nil) != want.structured || res.IsError != want.isError {
				t.Errorf("structuredContent %v, isError %v", res.StructuredContent, res.IsError)
			}
			// Without a picture, nothing is lost with isError.
			if res := callTool(t, cs, "run_code", args{"code": "exit 3"}); !res.IsError {
				t.Error("a run that failed is no error")
			}
			if res := callTool(t, cs, "run_code", args{"code": 5}); !res.IsError || (res.StructuredContent != nil) != want.structured {
				t.Errorf("an error has structuredContent %v", res.StructuredContent)
			}
		})
	}
	// The list of one client does not change that of another.
	s, _ := newTestServer(t, nil)
	for _, name := range []string{"codex-mcp-client", "unknown"} {
		list, err := serveStdioAs(t, s, name, nil).ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range list.Tools {
			if tool.Name == "run_code" && (tool.OutputSchema != nil) != (name == "unknown") {
				t.Errorf("%s: output schema %v", name, tool.OutputSchema)
			}
		}
	}
}

// TestToolPrefix looks for the names of tools in all that a client gets.
func TestToolPrefix(t *testing.T) {
	s, _ := newTestServer(t, func(o *Options) {
		withFiles(o)
		o.ToolPrefix = "box_"
	})
	cs := serveStdio(t, s, nil)
	plain, err := New(Options{Engine: newFakeEngine(), Log: testLog(t), Tools: []string{"run_code"}, ToolPrefix: "box_"})
	if err != nil || len(plain.tools()) == 0 {
		t.Errorf("a tool in Tools is named without the prefix: %v", err)
	}
	list, err := cs.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var seen strings.Builder
	seen.WriteString(cs.InitializeResult().Instructions)
	show := func(v any) {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		seen.Write(b)
	}
	for _, tool := range list.Tools {
		if !strings.HasPrefix(tool.Name, "box_") {
			t.Errorf("a tool has the name %q", tool.Name)
		}
		show(tool)
	}
	if len(list.Tools) != len(s.tools()) {
		t.Errorf("%d tools, want %d", len(list.Tools), len(s.tools()))
	}
	running := callTool(t, cs, "box_run_code", args{"code": "ask name?", "wait_seconds": 0})
	r := structured[answer.Run](t, running)
	show(running)
	for r.Input == nil {
		running = callTool(t, cs, "box_get_run", args{"run_id": r.RunID})
		r = structured[answer.Run](t, running)
	}
	show(running)
	show(callTool(t, cs, "box_run_command", args{"command": "verdict out_of_memory"}))
	show(callTool(t, cs, "box_run_command", args{"command": "verdict timeout"}))
	show(callTool(t, cs, "box_get_run", args{"run_id": r.RunID, "offset": 0}))
	show(callTool(t, cs, "box_get_sandbox", args{"sandbox_id": "no"}))
	show(callTool(t, cs, "box_get_sandbox", nil))
	logs, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "sandbox://" + r.SandboxID + "/logs"})
	if err != nil {
		t.Fatal(err)
	}
	show(logs)
	text := seen.String()
	for _, tool := range s.tools() {
		all, prefixed := strings.Count(text, tool.name), strings.Count(text, "box_"+tool.name)
		if prefixed == 0 || all != prefixed {
			t.Errorf("%s is named %d times, %d of them with the prefix", tool.name, all, prefixed)
		}
	}
	if _, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "run_code", Arguments: args{"code": "out 1"}}); err == nil {
		t.Error("a tool without the prefix is there")
	}
}

// TestMeta checks the hints for clients.
func TestMeta(t *testing.T) {
	s, _ := newTestServer(t, withFiles)
	list, err := serveStdio(t, s, nil).ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]mcp.Meta{}
	for _, tool := range list.Tools {
		if tool.Meta != nil {
			got[tool.Name] = tool.Meta
		}
	}
	long := mcp.Meta{"anthropic/maxResultSizeChars": 200_000.0}
	shown := mcp.Meta{"anthropic/maxResultSizeChars": 200_000.0, "anthropic/alwaysLoad": true, "ui": map[string]any{"resourceUri": "ui://glovebox/result.html"}}
	want := map[string]mcp.Meta{"run_code": shown, "run_command": shown, "get_run": shown, "read_file": long, "list_files": long, "search_files": long, "get_changes": long}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("_meta (-want +got):\n%s", diff)
	}
}
