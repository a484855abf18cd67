package main

import (
	"context"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// startServer serves the fixtures on a free port, and returns their URL. The
// server ends, without an error, before the test does.
func startServer(t *testing.T) (url string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, ln, slog.New(slog.NewTextHandler(t.Output(), nil))) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	// The suite insists on this name.
	return "http://" + strings.Replace(ln.Addr().String(), "127.0.0.1", "localhost", 1) + "/mcp"
}

// TestConformance runs the official suite of MCP against the fixtures. A run
// without failures that checked less than it used to is a failure, too.
func TestConformance(t *testing.T) {
	modules, err := filepath.Abs(filepath.Join("..", "node", "node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	node := filepath.Join(modules, ".bin", "node")
	suite := filepath.Join(modules, "@modelcontextprotocol", "conformance", "dist", "index.js")
	for _, file := range []string{node, suite} {
		if _, err := os.Stat(file); err != nil {
			if slices.Contains(strings.Split(os.Getenv("GLOVEBOX_REQUIRE"), ","), "conformance") {
				t.Fatalf("GLOVEBOX_REQUIRE has conformance, which is not installed: %v; make clients", err)
			}
			t.Skip("the conformance suite is not installed: make clients")
		}
	}
	url := startServer(t)
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

// TestNotFromOutside refuses to serve without tokens at an address that other
// machines reach.
func TestNotFromOutside(t *testing.T) {
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := serve(t.Context(), ln, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "loopback") {
		t.Errorf("serving everywhere: %v, want an error that names the loopback", err)
	}
}
