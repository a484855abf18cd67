package mcpserver

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
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
