package mcpserver

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/transport"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
)

// nodeProgram returns the command for a program of test/node, without which
// the test is skipped, or fails if GLOVEBOX_REQUIRE names the component.
func nodeProgram(t *testing.T, component string, path ...string) []string {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the clients of tests are for Linux")
	}
	modules, err := filepath.Abs(filepath.Join("..", "..", "test", "node", "node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	command := []string{filepath.Join(modules, ".bin", "node"), filepath.Join(append([]string{modules}, path...)...)}
	for _, file := range command {
		if _, err := os.Stat(file); err != nil {
			if slices.Contains(strings.Split(os.Getenv("GLOVEBOX_REQUIRE"), ","), component) {
				t.Fatalf("%s is required: %v; run npm ci in test/node", component, err)
			}
			t.Skipf("%s is not installed: run npm ci in test/node", component)
		}
	}
	return command
}

// inspector runs the Inspector's command line and returns what it printed.
func inspector(t *testing.T, command []string, arguments ...string) (stdout string, ok bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], slices.Concat(command[1:], []string{"--cli"}, arguments)...)
	cmd.WaitDelay = 10 * time.Second
	cmd.Env = append(os.Environ(), "NO_COLOR=1", "HOME="+t.TempDir())
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Logf("inspector %q: %v\n%s%s", arguments, err, out, stderr.String())
	}
	return string(out), err == nil
}

// TestInspector lists and calls tools with the Inspector, over every transport
// and in both eras.
func TestInspector(t *testing.T) {
	command := nodeProgram(t, "inspector", "@modelcontextprotocol", "inspector", "clients", "launcher", "build", "index.js")
	s, _ := newTestServer(t, nil)
	url := serveHTTP(t, s)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	http := func(path, transport string, more ...string) []string {
		return append([]string{"--server-url", url + path, "--transport", transport, "--header", "Authorization: Bearer alice"}, more...)
	}
	for name, target := range map[string][]string{
		"stdio":       {self, "serve-stdio"},
		"http":        http(transport.StreamablePath, "http"),
		"http modern": http(transport.StreamablePath, "http", "--protocol-era", "modern"),
		"sse":         http(transport.SSEPath, "sse"),
	} {
		t.Run(name, func(t *testing.T) {
			out, ok := inspector(t, command, append(target, "--method", "tools/list", "--strict", "--format", "json")...)
			if !ok {
				t.Fatal("tools/list failed")
			}
			var list struct {
				Result struct {
					Tools []struct{ Name string }
				}
			}
			if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Result.Tools) != len(s.tools()) {
				t.Errorf("tools/list gave %d tools, %v; want %d:\n%.1000s", len(list.Result.Tools), err, len(s.tools()), out)
			}
			out, ok = inspector(t, command, append(target, "--method", "tools/call", "--tool-name", "run_code",
				"--tool-args-json", `{"code":"out 42\nerr note\nexit 0"}`, "--format", "json")...)
			if !ok {
				t.Fatal("tools/call failed")
			}
			var called struct {
				Result struct {
					Content           []struct{ Text string }
					StructuredContent answer.Run
					IsError           bool
				}
			}
			if err := json.Unmarshal([]byte(out), &called); err != nil {
				t.Fatalf("%v:\n%s", err, out)
			}
			if res := called.Result; res.IsError || res.StructuredContent.Stdout != "42\n" || len(res.Content) != 1 || !strings.Contains(res.Content[0].Text, "[ok, exit code 0") {
				t.Errorf("tools/call gave %+v\n%s", res, out)
			}
		})
	}
}
