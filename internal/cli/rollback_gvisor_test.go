//go:build linux && !nogvisor

package cli

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestGvisorRollbackOnFailure has runs fail in a sandbox with a workspace: the variable
// and the file outside of the workspace return, and the file in it stays. Then it makes a
// sandbox of a snapshot.
func TestGvisorRollbackOnFailure(t *testing.T) {
	binary := os.Getenv("GLOVEBOX_TEST_BINARY")
	if binary == "" {
		binary = build(t)
	}
	needGvisor(t, binary)
	dir := t.TempDir()
	c := startStdio(t, exec.Command(binary, "mcp", "--driver", "gvisor", "--state-dir", dir))
	run := func(verdict, code string, more map[string]any, want ...string) {
		t.Helper()
		args := map[string]any{"code": code, "timeout_seconds": 60}
		for k, v := range more {
			args[k] = v
		}
		a := c.tool("run_code", args)
		if got := a.text(); a.Structured.Verdict.Code != verdict || !strings.Contains(got, strings.Join(want, "\n")) {
			t.Errorf("%s: verdict %s, want %s and %q in\n%s", code, a.Structured.Verdict.Code, verdict, want, got)
		}
	}
	const (
		write = "def write(text):\n  for name in '/tmp/f', '/data/f':\n    open(name, 'w').write(text)\n"
		show  = "print(x, open('/tmp/f').read(), open('/data/f').read())"
		again = "The sandbox has the state from before this run again. The files of the workspace at /data are as the run left them."
	)
	undo := map[string]any{"rollback_on_failure": true}
	c.tool("create_sandbox", map[string]any{"workspace": "kept"})
	run("ok", write+"x = 1\nwrite('one')", nil)
	run("failed", "x = 2\nwrite('two')\n1/0", undo, again)
	run("ok", show, nil, "1 one two")
	run("timeout", "x = 3\nwrite('three')\nwhile True: pass", map[string]any{"rollback_on_failure": true, "timeout_seconds": 2}, again)
	run("ok", show, nil, "1 one three")
	run("killed", "import os\nx = 4\nwrite('four')\nos._exit(1)", undo, "cause: the interpreter exited (exit status 1); the context has its variables from before the run", again)
	run("killed", "import os\nopen('/tmp/f', 'w').write('five')\nos.kill(os.getpid(), 9)", map[string]any{"rollback_on_failure": true, "stateless": true}, again)
	run("ok", show, nil, "1 one four")
	run("ok", "x = 5\nwrite('five')", undo)
	run("ok", show, nil, "5 five five")
	if states, err := filepath.Glob(filepath.Join(dir, "gvisor", "snapshots", "*")); err != nil || len(states) > 0 {
		t.Errorf("the runs left %v, %v", states, err)
	}

	if a := c.tool("snapshot", map[string]any{"action": "take", "snapshot": "good"}); a.IsError {
		t.Fatal(a.text())
	}
	run("ok", "x = 6\nwrite('six')", nil)
	first := c.sandbox
	c.sandbox = ""
	made := new(toolAnswer)
	if err := json.Unmarshal(c.call("tools/call", map[string]any{"name": "create_sandbox", "arguments": map[string]any{"snapshot": "good"}}), made); err != nil || made.IsError {
		t.Fatalf("%v: %s", err, made.text())
	}
	if c.sandbox = made.Structured.SandboxID; c.sandbox == first || c.sandbox == "" {
		t.Errorf("the sandbox of the snapshot is %q", c.sandbox)
	}
	run("ok", show, nil, "5 five six")
}
