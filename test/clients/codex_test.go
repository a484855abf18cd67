//go:build linux

package clients

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestCodexAsks has a person use Codex on a terminal under its default approval
// policy. Code runs without a question, because the tool is not destructive. The end
// of a sandbox loses data, so Codex asks first, and the call is made after the answer.
func TestCodexAsks(t *testing.T) {
	if _, err := exec.LookPath("tmux"); err != nil {
		if required("agents") {
			t.Fatal("GLOVEBOX_REQUIRE has agents: tmux is not installed: make clients")
		}
		t.Skip("tmux is not installed: make clients")
	}
	binary := glovebox(t)
	codex := agents()[slices.IndexFunc(agents(), func(c client) bool { return c.name == "codex" })]
	needModule(t, codex.module)
	m := newModel(t, []step{
		{"code", "run_code", func(*model) map[string]any { return map[string]any{"code": "print(6 * 7)"} }},
		{"stop", "stop_sandbox", func(m *model) map[string]any {
			return map[string]any{"sandbox_id": m.firstID(sandboxID)}
		}},
	})
	home := newHome(t)
	env := append(os.Environ(), "HOME="+home, "TMPDIR="+home, "CODEX_HOME="+filepath.Join(home, ".codex"), "TERM=xterm-256color", "TMUX=")
	install := exec.CommandContext(t.Context(), binary, "install", "codex")
	install.Env = env
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("glovebox install: %v\n%s", err, out)
	}
	argv, _ := codex.command(t, conditions{home: home, model: m.url})

	tmux := func(args ...string) string {
		t.Helper()
		// The terminal outlives the test's context, for the clean-up below.
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "tmux", append([]string{"-S", filepath.Join(home, "tmux"), "-f", "/dev/null"}, args...)...)
		cmd.Env, cmd.Dir = env, home
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("tmux %q: %v: %s", args, err, out)
		}
		return string(out)
	}
	tmux("new-session", "-d", "-x", "140", "-y", "50", argv[0]+" --cd "+home+" 'Follow the script.'")
	t.Cleanup(func() {
		tmux("kill-server")
		// Codex on a terminal starts a daemon, which outlives it and has the MCP servers.
		for _, pid := range pidsWithHome(t, home) {
			if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && err != syscall.ESRCH {
				t.Error(err)
			}
		}
		serversEnd(t, home)
	})
	screen := func() string { return tmux("capture-pane", "-p") }
	made := func() int {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.results)
	}
	const question = `Allow the glovebox MCP server to run tool "stop_sandbox"?`
	for deadline := time.Now().Add(limit); !strings.Contains(screen(), question); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("Codex does not ask; the screen:\n%s\nthe model's side:\n%s", screen(), m.transcript())
		}
	}
	if got := made(); got != 1 {
		t.Errorf("%d calls were made before the question, want 1: code runs without one", got)
	}
	tmux("send-keys", "Enter") // the first answer is Allow
	for deadline := time.Now().Add(limit); made() < 2 && time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
	}
	if r, ok := m.result("stop"); !ok || !strings.Contains(r.text, "stopped") {
		t.Errorf("the result of stop_sandbox after the answer: %q; the screen:\n%s", r.text, screen())
	}
}
