package mcpserver

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/transport"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// These headers decide which era of the protocol a request belongs to.
const (
	sessionHeader = "Mcp-Session-Id"
	versionHeader = "Mcp-Protocol-Version"
	firstModern   = "2026-07-28"
)

var update = flag.Bool("update", false, "write the goldens instead of comparing with them")

// TestMain makes the test binary a stdio server when it is started as one, so
// that real clients have a program to start.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve-stdio" {
		e := newFakeEngine()
		s, err := New(Options{Engine: e, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Version: "test"})
		if err == nil {
			err = s.ServeStdio(context.Background(), os.Stdin, os.Stdout)
		}
		e.close()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	code := m.Run()
	if leak := leaked(); code == 0 && leak != "" {
		fmt.Fprintf(os.Stderr, "goroutines left behind:\n%s\n", leak)
		code = 1
	}
	os.Exit(code)
}

// leaked returns the stacks of goroutines of ours or the SDK's that do not end.
func leaked() string {
	var left string
	for range 50 {
		left = ""
		buf := make([]byte, 4<<20)
		for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(g, "TestMain") {
				continue
			}
			if strings.Contains(g, "glovebox/internal") || strings.Contains(g, "go-sdk") {
				left += g + "\n\n"
			}
		}
		if left == "" {
			return ""
		}
		time.Sleep(100 * time.Millisecond)
	}
	return left
}

// testLog logs to the test's output.
func testLog(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// newTestServer returns a server over a fake engine; both end with the test.
func newTestServer(t testing.TB, change func(*Options)) (*Server, *fakeEngine) {
	t.Helper()
	e := newFakeEngine()
	o := Options{Engine: e, Log: testLog(t), Version: "test"}
	if change != nil {
		change(&o)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 0)
		defer cancel()
		s.Shutdown(ctx)
		e.close()
	})
	return s, e
}

// serveStdio connects a client over a pair of pipes.
func serveStdio(t testing.TB, s *Server, o *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	return serveStdioAs(t, s, "test", o)
}

// serveStdioAs connects a client of that name over a pair of pipes.
func serveStdioAs(t testing.TB, s *Server, name string, o *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	return serveStdioIn(t, s, name, "", o)
}

// serveStdioIn does the same in a version of the protocol; "" is the client's choice.
func serveStdioIn(t testing.TB, s *Server, name, version string, o *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- s.ServeStdio(t.Context(), inR, outW) }()
	c := mcp.NewClient(&mcp.Implementation{Name: name, Version: "1"}, o)
	cs, err := c.Connect(t.Context(), &mcp.IOTransport{Reader: outR, Writer: inW}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cs.Close()
		if err := <-done; err != nil && err != context.Canceled {
			t.Errorf("ServeStdio: %v", err)
		}
	})
	return cs
}

// asTokens is the front door of a test: a bearer token is the principal's name,
// followed by its scopes behind a slash if it does not have them all.
func asTokens(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if ok {
			name, scopes, limited := strings.Cut(token, "/")
			id := auth.Identity{Principal: sandbox.Principal(name), Scopes: auth.Scopes()}
			if limited {
				id.Scopes = nil
				for s := range strings.SplitSeq(scopes, ",") {
					id.Scopes = append(id.Scopes, auth.Scope(s))
				}
			}
			r = r.WithContext(auth.NewContext(r.Context(), id))
		}
		next.ServeHTTP(w, r)
	})
}

// serveHTTP serves s on a loopback port and returns its address.
func serveHTTP(t testing.TB, s *Server) string {
	t.Helper()
	srv := httptest.NewServer(asTokens(s.Handler()))
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return srv.URL
}

// bearer adds a token to requests, unless it is empty.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b == "" {
		return http.DefaultTransport.RoundTrip(r)
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// connectHTTP connects a client over Streamable HTTP.
func connectHTTP(t testing.TB, url, token string, o *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, o)
	cs, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint:   url + transport.StreamablePath,
		HTTPClient: &http.Client{Transport: bearer(token)},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cs.Close() })
	return cs
}

// connectSSE connects a client over the older transport.
func connectSSE(t testing.TB, url, token string) *mcp.ClientSession {
	t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	cs, err := c.Connect(t.Context(), &mcp.SSEClientTransport{
		Endpoint:   url + transport.SSEPath,
		HTTPClient: &http.Client{Transport: bearer(token)},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cs.Close() })
	return cs
}

// args are a tool's arguments.
type args = map[string]any

// callTool calls a tool, and fails the test on a protocol error.
func callTool(t testing.TB, cs *mcp.ClientSession, name string, a args) *mcp.CallToolResult {
	t.Helper()
	res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: a})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return res
}

// text is the text of a result.
func text(res *mcp.CallToolResult) string {
	var b strings.Builder
	for _, c := range res.Content {
		if tc, ok := c.(*mcp.TextContent); ok {
			b.WriteString(tc.Text)
		}
	}
	return b.String()
}

// structured decodes a result's structuredContent.
func structured[T any](t testing.TB, res *mcp.CallToolResult) T {
	t.Helper()
	var v T
	b, err := json.Marshal(res.StructuredContent)
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	if err != nil {
		t.Fatalf("structuredContent %s: %v", b, err)
	}
	return v
}

// run starts a run that must succeed as a call.
func run(t testing.TB, cs *mcp.ClientSession, script string, more args) answer.Run {
	t.Helper()
	a := args{"code": script}
	for k, v := range more {
		a[k] = v
	}
	return structured[answer.Run](t, callTool(t, cs, "run_code", a))
}

// eventually waits until ok.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for range 500 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("not within five seconds: %s", what)
}

// newGroupServer serves a group on a loopback port and returns its address.
func newGroupServer(t testing.TB, g *Group) string {
	t.Helper()
	srv := httptest.NewServer(asTokens(g.Handler()))
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return srv.URL
}
