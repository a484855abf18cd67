//go:build linux && !nogvisor

package cli

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestE2BDriver has a Glovebox use another as if that were E2B's cloud, whose
// sandboxes are sealed: what the driver does in them is done for good there.
func TestE2BDriver(t *testing.T) {
	binary := os.Getenv("GLOVEBOX_TEST_BINARY")
	if binary == "" {
		binary = build(t)
	}
	needGvisor(t, binary)
	cloud := append(os.Environ(), "GLOVEBOX_STATE_DIR="+t.TempDir(), "NO_COLOR=1", "GLOVEBOX_DRIVER=gvisor")
	url := serveE2B(t, binary, cloud)
	state := t.TempDir()
	env := append(os.Environ(), "GLOVEBOX_STATE_DIR="+state, "NO_COLOR=1", "GLOVEBOX_DRIVER=e2b",
		"E2B_API_KEY="+apiKey(t, binary, cloud, "alice"), "E2B_API_URL="+url, "E2B_SANDBOX_URL="+url)
	glovebox := func(args ...string) (string, error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, binary, args...)
		cmd.Env = env
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			return string(out) + stderr.String(), err
		}
		return string(out), nil
	}
	run := func(command string) string {
		t.Helper()
		out, err := glovebox("run", "--allow-unenforced", "cpu,memory,processes,disk", "--workspace", "w", "-l", "sh", "-c", command)
		if err != nil {
			t.Fatalf("run %q: %v: %s", command, err, out)
		}
		return out
	}

	// A workspace goes into each sandbox and comes back.
	if got := run("pwd; id -un; ls -A; mkdir d; echo one > d/file; echo two > two; ln -s d link; : > 'odd\nname'"); got != "/data\nuser\n" {
		t.Errorf("the first run: %q", got)
	}
	if got := run("test -O d/file && cat link/file two; ls -A | wc -l; rm two; echo three >> d/file"); got != "one\ntwo\n5\n" {
		t.Errorf("the second run: %q", got)
	}
	archive, err := glovebox("workspace", "export", "w")
	if err != nil {
		t.Fatalf("%v: %s", err, archive)
	}
	tar := exec.CommandContext(t.Context(), "tar", "-t", "--quoting-style=escape")
	tar.Stdin = strings.NewReader(archive)
	list, err := tar.Output()
	if err != nil || strings.Contains(string(list), "two") || !strings.Contains(string(list), "d/file") || !strings.Contains(string(list), "odd\\nname") {
		t.Errorf("the workspace has %q, %v", list, err)
	}
	if got := run("cat d/file"); got != "one\nthree\n" {
		t.Errorf("the third run: %q", got)
	}
}

// TestE2BDriverSnapshots has a Glovebox fork sandboxes of another. A copy has the memory,
// and a workspace of its own with the files that the first has in it.
func TestE2BDriverSnapshots(t *testing.T) {
	binary := os.Getenv("GLOVEBOX_TEST_BINARY")
	if binary == "" {
		binary = build(t)
	}
	needGvisor(t, binary)
	cloud := append(os.Environ(), "GLOVEBOX_STATE_DIR="+t.TempDir(), "NO_COLOR=1", "GLOVEBOX_DRIVER=gvisor")
	url := serveE2B(t, binary, cloud)
	dir := t.TempDir()
	cmd := exec.Command(binary, "mcp", "--driver", "e2b", "--state-dir", dir, "--allow-unenforced", "cpu,memory,processes,disk")
	cmd.Env = append(os.Environ(), "E2B_API_KEY="+apiKey(t, binary, cloud, "alice"), "E2B_API_URL="+url, "E2B_SANDBOX_URL="+url)
	c := startStdio(t, cmd)
	run := func(code, want string) {
		t.Helper()
		a := c.tool("run_code", map[string]any{"code": code, "timeout_seconds": 60})
		if got := a.text(); a.Structured.Verdict.Code != "ok" || !strings.Contains(got, want) {
			t.Errorf("%s: verdict %s, want %q in\n%s", code, a.Structured.Verdict.Code, want, got)
		}
	}
	snapshot := func(args map[string]any) (forks []string, text string, failed bool) {
		t.Helper()
		var a struct {
			IsError           bool
			Content           []struct{ Text string }
			StructuredContent struct{ Sandboxes []string }
		}
		if err := json.Unmarshal(c.call("tools/call", map[string]any{"name": "snapshot", "arguments": args}), &a); err != nil {
			t.Fatal(err)
		}
		for _, part := range a.Content {
			text += part.Text
		}
		return a.StructuredContent.Sandboxes, text, a.IsError
	}
	const show = "print(x, open('/tmp/f').read(), sorted(os.listdir('/data')), open('/data/f').read())"
	c.tool("create_sandbox", map[string]any{"workspace": "kept"})
	run("import os\nx = 1\nfor name in '/tmp/f', '/data/f', '/data/g':\n  open(name, 'w').write('one')", "")
	if _, text, failed := snapshot(map[string]any{"action": "take", "sandbox_id": c.sandbox, "snapshot": "good"}); failed || !strings.Contains(text, "unknown size") {
		t.Fatalf("take: %s", text)
	}
	run("x = 2\nfor name in '/tmp/f', '/data/f':\n  open(name, 'w').write('two')\nos.remove('/data/g')", "")
	if _, text, failed := snapshot(map[string]any{"action": "rollback", "sandbox_id": c.sandbox, "snapshot": "good"}); !failed || !strings.Contains(text, "cannot return a sandbox to a snapshot") {
		t.Errorf("rollback: %s", text)
	}
	first := c.sandbox
	forks, text, failed := snapshot(map[string]any{"action": "fork", "sandbox_id": first, "count": 2})
	if failed || len(forks) != 2 {
		t.Fatalf("fork: %s, %q", text, forks)
	}
	for _, c.sandbox = range forks {
		run(show, "2 two ['f'] two")
		run("x = 3\nopen('/data/f', 'w').write('three')", "")
	}
	// The snapshot is of before; the workspace is a copy of the present one.
	c.sandbox = ""
	made := new(toolAnswer)
	if err := json.Unmarshal(c.call("tools/call", map[string]any{"name": "create_sandbox", "arguments": map[string]any{"snapshot": "good"}}), made); err != nil || made.IsError {
		t.Fatalf("%v: %s", err, made.text())
	}
	c.sandbox = made.Structured.SandboxID
	run(show, "1 one ['f'] two")
	c.sandbox = first
	run(show, "2 two ['f'] two")
	if _, text, failed := snapshot(map[string]any{"action": "delete", "snapshot": "good"}); failed {
		t.Errorf("delete: %s", text)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "e2b", "snapshots", "*")); err != nil || len(left) > 0 {
		t.Errorf("records of snapshots are left: %v, %v", left, err)
	}
}
