//go:build linux

package cli

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// startServe starts glovebox serve as a process of its own, with the fake
// driver, on a free port, and returns its address. The process ends, without
// an error, before the test does.
func startServe(t *testing.T, env []string, args ...string) (url string) {
	t.Helper()
	cmd := exec.Command("glovebox", append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	cmd.Env = append(os.Environ(), "GLOVEBOX_DRIVER=fake", "GLOVEBOX_STATE_DIR="+t.TempDir(), "HOME="+t.TempDir(), "NO_COLOR=1")
	cmd.Env = append(cmd.Env, env...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	address := make(chan string, 1)
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(address)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			t.Log(lines.Text())
			if _, at, ok := strings.Cut(lines.Text(), "serving MCP at "); ok {
				address <- strings.TrimSuffix(at, "/mcp")
			}
		}
	}()
	t.Cleanup(func() {
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		<-read
		if err := cmd.Wait(); err != nil {
			t.Errorf("glovebox serve: %v", err)
		}
	})
	url, ok := <-address
	if !ok {
		t.Fatal("glovebox serve does not serve")
	}
	return url
}

// TestConformance runs the official suite of MCP against the program. A run
// without failures that checked less than it used to is a failure, too.
func TestConformance(t *testing.T) {
	modules, err := filepath.Abs(filepath.Join("..", "..", "test", "node", "node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	node := filepath.Join(modules, ".bin", "node")
	suite := filepath.Join(modules, "@modelcontextprotocol", "conformance", "dist", "index.js")
	for _, file := range []string{node, suite} {
		if _, err := os.Stat(file); err != nil {
			if required("conformance") {
				t.Fatalf("GLOVEBOX_REQUIRE has conformance, which is not installed: %v; make clients", err)
			}
			t.Skip("the conformance suite is not installed: make clients")
		}
	}
	// The suite insists on this name.
	url := strings.Replace(startServe(t, nil, "--conformance"), "127.0.0.1", "localhost", 1) + "/mcp"
	for name, tt := range map[string]struct {
		arguments []string
		checks    int // at least
	}{
		"requirements 2025-11-25": {[]string{"--requirements", "2025-11-25"}, 84},
		"requirements 2026-07-28": {[]string{"--requirements", "2026-07-28"}, 197},
		"all 2025-06-18":          {[]string{"--suite", "all", "--spec-version", "2025-06-18"}, 56},
		"all 2025-11-25":          {[]string{"--suite", "all", "--spec-version", "2025-11-25"}, 84},
		"all 2026-07-28":          {[]string{"--suite", "all", "--spec-version", "2026-07-28"}, 153},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), node, append([]string{suite, "server", "--url", url}, tt.arguments...)...)
			cmd.Env = append(os.Environ(), "NO_COLOR=1")
			cmd.Dir = t.TempDir()
			cmd.WaitDelay = 10 * time.Second
			out, err := cmd.CombinedOutput()
			m := regexp.MustCompile(`Total: (\d+) passed, (\d+) failed`).FindStringSubmatch(string(out))
			if err != nil || m == nil || m[2] != "0" {
				t.Fatalf("%v\n%s", err, out)
			}
			if passed, err := strconv.Atoi(m[1]); err != nil || passed < tt.checks {
				t.Errorf("%d checks passed, want at least %d:\n%s", passed, tt.checks, out)
			} else {
				t.Log(m[0])
			}
		})
	}
}
