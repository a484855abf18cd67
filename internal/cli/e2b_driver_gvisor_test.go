//go:build linux && !nogvisor

package cli

import (
	"context"
	"os"
	"os/exec"
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
