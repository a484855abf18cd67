package mcpserver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/profile"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// promptNames lists the prompts of a client.
func promptNames(t *testing.T, cs *mcp.ClientSession) (names []string) {
	t.Helper()
	list, err := cs.ListPrompts(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list.Prompts {
		names = append(names, p.Name)
	}
	return names
}

// TestPrompts gets the prompts over every transport, and checks their owner, their
// scope and their errors.
func TestPrompts(t *testing.T) {
	s, _ := newTestServer(t, func(o *Options) { o.ToolPrefix = "gb_" })
	url := serveHTTP(t, s)
	all := []string{"analyse_csv", "explain_failure", "review_repository"}
	for name, cs := range map[string]*mcp.ClientSession{
		"stdio": serveStdio(t, s, nil), "Streamable HTTP": connectHTTP(t, url, "alice", nil), "SSE": connectSSE(t, url, "bob"),
	} {
		if diff := cmp.Diff(all, promptNames(t, cs)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if p := cs.InitializeResult().Capabilities.Prompts; p == nil || p.ListChanged {
			t.Errorf("%s: the capability is %+v", name, p)
		}
		callTool(t, cs, "gb_run_code", args{"code": "out of " + name + "\nexit 3"})
		callTool(t, cs, "gb_run_code", args{"code": "out fine"})
		res, err := cs.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "explain_failure"})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		text := res.Messages[0].Content.(*mcp.TextContent).Text
		if len(res.Messages) != 1 || !strings.Contains(text, "out of "+name) || !strings.Contains(text, "exit code 3") {
			t.Errorf("%s:\n%s", name, text)
		}
	}
	if got := promptNames(t, connectHTTP(t, url, "carol/files", nil)); len(got) != 0 {
		t.Errorf("a token without the scope to run sees %v", got)
	}
	for token, want := range map[string]string{"carol/files": `lacks the scope "run"`, "dave": "run_id: none of your last 0 runs failed"} {
		_, err := connectHTTP(t, url, token, nil).GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "explain_failure"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", token, err, want)
		}
	}
}

// TestPromptsOfNarrowedServers checks which prompts a server without all tools has.
func TestPromptsOfNarrowedServers(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Options)
		want   []string
	}{
		"read-only": {func(o *Options) { o.ReadOnly = true }, []string{"explain_failure"}},
		"tools":     {func(o *Options) { o.Tools = []string{"run_code"} }, []string{"analyse_csv", "explain_failure"}},
	} {
		s, _ := newTestServer(t, tt.change)
		if diff := cmp.Diff(tt.want, promptNames(t, serveStdio(t, s, nil))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	s, _ := newTestServer(t, func(o *Options) {
		o.Profile = &profile.Profile{Name: "p", ServerName: "p", Tools: []profile.Tool{{Name: "run_code", Input: `{"type":"object"}`}}}
	})
	cs := serveStdio(t, s, nil)
	if cs.InitializeResult().Capabilities.Prompts != nil {
		t.Error("a profile announces prompts")
	}
	if list, err := cs.ListPrompts(t.Context(), nil); err == nil && len(list.Prompts) > 0 {
		t.Errorf("a profile has the prompts %v", list.Prompts)
	}
}

// TestPromptCompletion completes the arguments of prompts.
func TestPromptCompletion(t *testing.T) {
	s, e := newTestServer(t, nil)
	url := serveHTTP(t, s)
	alice, bob := connectHTTP(t, url, "alice", nil), connectHTTP(t, url, "bob", nil)
	ok := run(t, alice, "out fine", nil)
	failed := run(t, alice, "exit 1", nil)
	sb, err := e.Create(t.Context(), "alice", sandbox.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	e.mu.Lock()
	e.sandboxes[sb.ID].Workspace = "of alice"
	for i := range 120 {
		e.sandboxes[sb.ID].files[fmt.Sprintf("/data/many/%03d.csv", i)] = nil
	}
	e.sandboxes[sb.ID].files["/data/sales.csv"] = nil
	e.sandboxes[sb.ID].files["/secret"] = nil
	e.mu.Unlock()

	complete := func(cs *mcp.ClientSession, prompt, name, value, workspace string) mcp.CompletionResultDetails {
		t.Helper()
		res, err := cs.Complete(t.Context(), &mcp.CompleteParams{
			Ref:      &mcp.CompleteReference{Type: "ref/prompt", Name: prompt},
			Argument: mcp.CompleteParamsArgument{Name: name, Value: value},
			Context:  &mcp.CompleteContext{Arguments: map[string]string{"workspace": workspace}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return res.Completion
	}
	for _, tt := range []struct {
		cs                             *mcp.ClientSession
		prompt, name, value, workspace string
		want                           []string
	}{
		{alice, "explain_failure", "run_id", "run_", "", []string{failed.RunID}},
		{alice, "explain_failure", "run_id", ok.RunID, "", []string{}},
		{bob, "explain_failure", "run_id", "", "", []string{}},
		{alice, "analyse_csv", "workspace", "of", "", []string{"of alice"}},
		{bob, "review_repository", "workspace", "", "", []string{"of bob"}},
		{alice, "analyse_csv", "path", "sal", "of alice", []string{"sales.csv"}},
		{alice, "analyse_csv", "path", "../se", "of alice", []string{}},
		{alice, "analyse_csv", "path", "", "", []string{}},
		{alice, "analyse_csv", "path", "none/", "of alice", []string{}},
		{bob, "analyse_csv", "path", "", "of alice", []string{}},
		{connectHTTP(t, url, "alice/run", nil), "analyse_csv", "path", "", "of alice", []string{}},
		{alice, "analyse_csv", "question", "", "", []string{}},
		{alice, "no_prompt", "path", "", "", []string{}},
	} {
		if diff := cmp.Diff(tt.want, complete(tt.cs, tt.prompt, tt.name, tt.value, tt.workspace).Values); diff != "" {
			t.Errorf("%s %s %q (-want +got):\n%s", tt.prompt, tt.name, tt.value, diff)
		}
	}
	if many := complete(alice, "analyse_csv", "path", "many/", "of alice"); len(many.Values) != 100 || !many.HasMore || many.Total != 120 {
		t.Errorf("120 files: %d values, more %t, total %d", len(many.Values), many.HasMore, many.Total)
	}
}
