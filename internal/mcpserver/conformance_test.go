package mcpserver

import (
	"context"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/httpserver"
)

// serveFrontDoor serves s as glovebox serve does, for anybody.
func serveFrontDoor(t testing.TB, s *Server) (url string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	id := auth.Local()
	front, err := httpserver.New(httpserver.Options{
		Listen: ln.Addr().String(), MCP: s.Handler(), Anonymous: &id, Log: testLog(t), Drain: s.Shutdown, Grace: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- front.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return "http://" + ln.Addr().String()
}

// TestConformance runs the official suite against the real transports. A run
// without failures that checked less than it used to is a failure, too.
func TestConformance(t *testing.T) {
	command := nodeProgram(t, "conformance", "@modelcontextprotocol", "conformance", "dist", "index.js")
	s, _ := newTestServer(t, func(o *Options) { o.Conformance = true })
	url := strings.Replace(serveFrontDoor(t, s), "127.0.0.1", "localhost", 1) + StreamablePath
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
			cmd := exec.CommandContext(t.Context(), command[0], append(append(command[1:], "server", "--url", url), tt.arguments...)...)
			cmd.Env = append(os.Environ(), "NO_COLOR=1")
			cmd.Dir = t.TempDir()
			cmd.WaitDelay = 10 * time.Second
			out, err := cmd.CombinedOutput()
			m := regexp.MustCompile(`Total: (\d+) passed, (\d+) failed`).FindStringSubmatch(string(out))
			if err != nil || m == nil || m[2] != "0" {
				t.Fatalf("%v\n%s", err, out)
			}
			if passed, _ := strconv.Atoi(m[1]); passed < tt.checks {
				t.Errorf("%d checks passed, want at least %d:\n%s", passed, tt.checks, out)
			} else {
				t.Log(m[0])
			}
		})
	}
}
