package mcpserver

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/httpserver"
)

// BenchmarkRunCommand is what the edge itself takes of a call: the engine
// behind it does nothing.
func BenchmarkRunCommand(b *testing.B) {
	quiet := func(o *Options) { o.Log = slog.New(slog.DiscardHandler) }
	bench := func(connect func(b *testing.B, s *Server) *mcp.ClientSession) func(b *testing.B) {
		return func(b *testing.B) {
			s, _ := newTestServer(b, quiet)
			cs := connect(b, s)
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				if _, err := cs.CallTool(b.Context(), &mcp.CallToolParams{Name: "run_command", Arguments: args{"command": "exit 0"}}); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
		}
	}
	b.Run("stdio", bench(func(b *testing.B, s *Server) *mcp.ClientSession { return serveStdio(b, s, nil) }))
	b.Run("http", bench(func(b *testing.B, s *Server) *mcp.ClientSession {
		return connectHTTP(b, serveFrontDoor(b, s), "", nil)
	}))
}

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
