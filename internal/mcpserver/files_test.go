package mcpserver

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// scriptedFiles are files that are nowhere.
type scriptedFiles struct{}

func (scriptedFiles) FileLinks(context.Context, sandbox.Principal, string) (func(string) string, error) {
	return func(name string) string {
		return "https://box.example/files/id/" + (&url.URL{Path: name}).EscapedPath() + "?sig"
	}, nil
}

func (scriptedFiles) SignedURL(_ context.Context, _ sandbox.Principal, workspace, name, method string, good time.Duration) (string, time.Time, error) {
	return "https://box.example/" + method + "/" + workspace + "/" + name, time.Unix(0, 0).Add(good), nil
}

func (scriptedFiles) CopyIn(_ context.Context, _ sandbox.Principal, host, _, _ string, _ bool, progress func(sandbox.Copied)) (sandbox.Copied, error) {
	if host == "/refused" {
		return sandbox.Copied{}, sandbox.Errorf(sandbox.Invalid, "host_path: %s is refused", host)
	}
	progress(sandbox.Copied{Files: 1})
	return sandbox.Copied{Files: 2, Bytes: 10, Skipped: 1}, nil
}

func (scriptedFiles) CopyOut(context.Context, sandbox.Principal, string, string, string, func(sandbox.Copied)) (sandbox.Copied, error) {
	return sandbox.Copied{}, sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "host_path: not allowed"), "start with --allow-dir")
}

// withFiles has a server offer every tool that there is.
func withFiles(o *Options) {
	o.Files, o.HostFiles, o.Ports = scriptedFiles{}, scriptedFiles{}, scriptedFiles{}
}

func (scriptedFiles) PortURL(_ context.Context, p sandbox.Principal, id string, port int, good time.Duration) (string, time.Time, error) {
	if port > 65535 {
		return "", time.Time{}, sandbox.Errorf(sandbox.Invalid, "port: %d is none", port)
	}
	return fmt.Sprintf("https://%d-%s.box.example/?for=%s", port, id, good), time.Unix(0, 0), nil
}

func TestPreviewURL(t *testing.T) {
	s, _ := newTestServer(t, withFiles)
	cs := serveStdio(t, s, nil)
	for _, tt := range []struct {
		args    args
		isError bool
		want    string
	}{
		{args{"sandbox_id": "sbx_x", "port": 8000}, false, "https://8000-sbx_x.box.example/?for=1h0m0s\nuntil 1970"},
		{args{"sandbox_id": "sbx_x", "port": 8000, "expires_seconds": 60}, false, "?for=1m0s"},
		{args{"sandbox_id": "sbx_x", "port": 70000}, true, "70000"},
		{args{"sandbox_id": "sbx_x", "port": "http"}, true, "port"},
		{args{"sandbox_id": "sbx_x"}, true, "port"},
		{args{"sandbox_id": "sbx_x", "port": 80, "expires_seconds": 0}, true, "expires_seconds"},
	} {
		res := callTool(t, cs, "preview_url", tt.args)
		if text := res.Content[0].(*mcp.TextContent).Text; res.IsError != tt.isError || !strings.Contains(text, tt.want) {
			t.Errorf("%v: error %t, %q; want %q", tt.args, res.IsError, text, tt.want)
		}
	}
}

func TestSetNetwork(t *testing.T) {
	s, e := newTestServer(t, nil)
	cs := serveStdio(t, s, nil)
	for _, tt := range []struct {
		was     sandbox.Network
		to      any
		isError bool
		want    string
	}{
		{"internet", "pypi.org,*.example.com", false, "now has network pypi.org,*.example.com"},
		{"internet", []string{"pypi.org", "example.com"}, true, "network"},
		{"internet", "not a host", true, "not a host"},
		{"none", "pypi.org", true, "network"},
	} {
		sb, err := e.Create(t.Context(), sandbox.Local, sandbox.CreateRequest{Network: tt.was})
		if err != nil {
			t.Fatal(err)
		}
		res := callTool(t, cs, "set_network", args{"sandbox_id": sb.ID, "network": tt.to})
		if text := res.Content[0].(*mcp.TextContent).Text; res.IsError != tt.isError || !strings.Contains(text, tt.want) {
			t.Errorf("%s to %v: error %t, %q; want %q", tt.was, tt.to, res.IsError, text, tt.want)
		}
	}
}

func TestFileURL(t *testing.T) {
	s, _ := newTestServer(t, withFiles)
	cs := serveStdio(t, s, nil)
	call := func(args map[string]any) *mcp.CallToolResult {
		t.Helper()
		res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "file_url", Arguments: args})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	text := func(r *mcp.CallToolResult) string { return r.Content[0].(*mcp.TextContent).Text }
	for _, path := range []string{"a/b", "/data/a/b", "/data/./a//b"} {
		want := "GET https://box.example/GET/w/a/b"
		if r := call(map[string]any{"path": path, "workspace": "w"}); r.IsError || !strings.HasPrefix(text(r), want) {
			t.Errorf("%s: %s", path, text(r))
		}
	}
	for _, path := range []string{".", "/data", "/data/"} {
		if r := call(map[string]any{"path": path, "workspace": "w"}); r.IsError || !strings.HasPrefix(text(r), "GET https://box.example/GET/w/.\n") {
			t.Errorf("%s: %s", path, text(r))
		}
	}
	if r := call(map[string]any{"path": "f", "workspace": "w", "method": "PUT", "expires_seconds": 5}); !strings.Contains(text(r), "PUT/w/f\nuntil 1970-01-01T00:00:05Z") {
		t.Errorf("PUT: %s", text(r))
	}
	for what, args := range map[string]map[string]any{
		"elsewhere": {"path": "/etc/passwd", "workspace": "w"}, "up": {"path": "/data/../etc", "workspace": "w"},
		"neither": {"path": "f"}, "both": {"path": "f", "workspace": "w", "sandbox_id": sandbox.NewID()},
		"nobody's": {"path": "f", "sandbox_id": sandbox.NewID()}, "method": {"path": "f", "workspace": "w", "method": "DELETE"},
	} {
		if r := call(args); !r.IsError {
			t.Errorf("%s: %s", what, text(r))
		}
	}
}

func TestCopyTools(t *testing.T) {
	s, _ := newTestServer(t, withFiles)
	cs := serveStdio(t, s, nil)
	res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "copy_in", Arguments: map[string]any{
		"host_path": "/home/me", "sandbox_id": sandbox.NewID(), "path": "x",
	}})
	if err != nil || res.IsError || !strings.Contains(res.Content[0].(*mcp.TextContent).Text, "copied 2 files") {
		t.Errorf("%+v, %v", res, err)
	}
	res, err = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "copy_out", Arguments: map[string]any{
		"host_path": "/home/me", "sandbox_id": sandbox.NewID(), "path": "x",
	}})
	if err != nil || !res.IsError || !strings.Contains(res.Content[0].(*mcp.TextContent).Text, "--allow-dir") {
		t.Errorf("%+v, %v", res, err)
	}
	// Without, there are none.
	plain, _ := newTestServer(t, nil)
	list, err := serveStdio(t, plain, nil).ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range list.Tools {
		if tool.Name == "file_url" || strings.HasPrefix(tool.Name, "copy_") {
			t.Errorf("%s is offered", tool.Name)
		}
	}
}

// TestListedNames lists a file whose name has a line that looks like another file.
func TestListedNames(t *testing.T) {
	s, e := newTestServer(t, nil)
	cs := serveStdio(t, s, nil)
	sb, err := e.Create(t.Context(), sandbox.Local, sandbox.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	const name = "/data/a\n-rw-r--r--        1 b"
	if err := e.WriteFile(t.Context(), sandbox.Local, sb.ID, name, strings.NewReader("x"), false); err != nil {
		t.Fatal(err)
	}
	res := callTool(t, cs, "list_files", args{"sandbox_id": sb.ID})
	if want := fmt.Sprintf("-rw-r--r-- %8d %q", 1, name); text(res) != want {
		t.Errorf("the text is %q, want %q", text(res), want)
	}
}

func TestEditFile(t *testing.T) {
	s, _ := newTestServer(t, nil)
	cs := serveStdio(t, s, nil)
	id := structured[struct {
		SandboxID string `json:"sandbox_id"`
	}](t, callTool(t, cs, "write_file", args{"path": "f", "content": "a b b\n"})).SandboxID
	edit := func(a args) args { a["sandbox_id"], a["path"] = id, "f"; return a }
	for _, tt := range []struct {
		args    args
		isError bool
		want    string
	}{
		{edit(args{"old_string": "a", "new_string": ""}), false, "edited f: 1 replacement, 5 bytes, at line 1"},
		{edit(args{"edits": []any{args{"old_string": "b", "new_string": "c", "replace_all": true}, args{"old_string": "\n", "new_string": "d"}}}), false, "edited f: 3 replacements, 5 bytes, at line 1, 1"},
		{edit(args{"old_string": "x", "new_string": ""}), true, "old_string: 0 matches"},
		{edit(args{"new_string": ""}), true, "old_string: missing"},
		{edit(args{"old_string": "x"}), true, "new_string: missing"},
		{edit(args{"old_string": "x", "edits": []any{args{"old_string": "c", "new_string": "d"}}}), true, "edits: given beside old_string"},
		{edit(args{"edits": []any{args{"old_string": "c"}}}), true, "edits[0].new_string: missing"},
		{edit(args{"edits": []any{args{"old_string": "c", "new_string": 1}}}), true, "edits[0].new_string: 1 is not a string"},
		{edit(args{"edits": []any{args{"old": "c"}}}), true, "edits[0].old: there is no such property"},
		{edit(args{"edits": "c"}), true, `edits: "c" is not an array of which each item is an object of new_string, old_string and replace_all`},
	} {
		res := callTool(t, cs, "edit_file", tt.args)
		if got := text(res); res.IsError != tt.isError || !strings.Contains(got, tt.want) {
			t.Errorf("%v: %v, %q; want %q", tt.args, res.IsError, got, tt.want)
		}
	}
	callTool(t, cs, "write_file", args{"sandbox_id": id, "path": "g.txt", "content": "one\nneedle 2\n"})
	for _, tt := range []struct {
		tool string
		args args
		want string
	}{
		{"search_files", args{"pattern": "needle"}, "/data/g.txt:2: needle 2\n[2 matching lines in 1 of 2 files; 1 matching lines are not shown: use a narrower path, glob or pattern]"},
		{"get_changes", args{}, "diff --git a/data/f b/data/f\ndiff --git a/data/g.txt b/data/g.txt\n[in /data: 2 created, 0 modified, 0 removed]"},
		{"get_changes", args{"since": "odd"}, "no diff of large: odd; 2 changed files are not shown: use a narrower path]"},
		{"search_files", args{"pattern": "none"}, "[0 matching lines in 0 of 2 files]"},
		{"search_files", args{"pattern": "none", "glob": "slow"}, "[0 matching lines in 0 of 2 files; the time for a search has passed, and nothing after /data/x was looked at: use a narrower path, glob or pattern]"},
		{"list_files", args{"glob": "*.txt"}, "/data/g.txt\n[there are more: 3 files are not shown: use a narrower path, glob or pattern]"},
		{"search_files", args{"pattern": "x", "max_results": 1001}, "max_results: 1001 is not an integer from 1 to 1000"},
	} {
		tt.args["sandbox_id"] = id
		if got := text(callTool(t, cs, tt.tool, tt.args)); !strings.Contains(got, tt.want) {
			t.Errorf("%s %v: %q, want %q", tt.tool, tt.args, got, tt.want)
		}
	}
}
