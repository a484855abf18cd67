package httpserver

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// plainE2B knows who asks by a header, and streams what is below /stream.
type plainE2B struct{}

func (plainE2B) Authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if who := r.Header.Get("X-Api-Key"); who != "" {
			next.ServeHTTP(w, r.WithContext(auth.NewContext(r.Context(), auth.Identity{Principal: sandbox.Principal(who)})))
			return
		}
		plainE2B{}.Refuse(w, r, sandbox.Errorf(sandbox.Unauthenticated, "who"))
	})
}

func (plainE2B) Refuse(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, "E2B: "+err.Error(), sandbox.KindOf(err).HTTPStatus())
}

func (plainE2B) Streams(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/stream") }

func (plainE2B) OnPort(r *http.Request) bool { return strings.HasPrefix(r.Host, "8000-") }

func (plainE2B) TakesPort(r *http.Request) bool { return r.Header.Get("X-Api-Key") != "" }

func (plainE2B) Lasts(r *http.Request) bool { return plainE2B{}.Streams(r) }

func (plainE2B) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(io.Discard, r.Body)
	fmt.Fprintf(w, "%s %d %v", r.URL.Path, n, err)
}

func newE2B(t *testing.T, change func(*Options)) string {
	t.Helper()
	o := Options{Listen: "127.0.0.1:0", E2B: plainE2B{}, Auth: tokens{}, Log: slog.New(slog.DiscardHandler), MaxBodyBytes: 1000}
	if change != nil {
		change(&o)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: s.Handler()}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() { defer close(served); srv.Serve(ln) }()
	t.Cleanup(func() { srv.Close(); <-served })
	return "http://" + ln.Addr().String()
}

func send(t *testing.T, url, host string, size int, key string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(strings.Repeat("x", size)))
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	if host != "" {
		req.Host = host
	}
	if key != "" {
		req.Header.Set("X-Api-Key", key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(bufio.NewReader(resp.Body))
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// TestE2B: E2B's protocol is behind the same guards, and its clients read its
// errors; what it passes on may be longer than what is kept.
func TestE2B(t *testing.T) {
	alone := newE2B(t, func(o *Options) { o.AllowHosts = []string{"*.box.example.com"} })
	beside := newE2B(t, func(o *Options) { o.MCP = http.HandlerFunc(echo) })
	const port = "8000-sbxaaaaaaaaaaaaaaaaaaaaaaaaaa.localhost"
	ports := newE2B(t, func(o *Options) {
		o.MCP, o.Ports, o.PreviewDomain = http.HandlerFunc(echo), scriptedPorts{}, "localhost"
		o.RequestsPerSecond = 0.5
	})
	few := newE2B(t, func(o *Options) { o.RequestsPerSecond = 0.5 })
	for _, tt := range []struct {
		url, host string
		size      int
		key       string
		status    int
		body      string
	}{
		{alone + "/v2/sandboxes", "", 10, "a", 200, "/v2/sandboxes 10 <nil>"},
		{alone + "/v2/sandboxes", "", 10, "", 401, "E2B: who\n"},
		{alone + "/v2/sandboxes", "", 2000, "a", 413, ""},
		{alone + "/stream", "", 5 << 20, "a", 200, "/stream 5242880 <nil>"},
		{alone + "/x", "evil.example.com", 0, "a", 403, ""},
		{alone + "/x", "box.example.com", 0, "a", 403, ""},
		{alone + "/x", "49983-sbx_a.box.example.com", 0, "a", 200, "/x 0 <nil>"},
		{alone + "/x", "49983-sbx_a.box.example.com:3000", 0, "a", 200, "/x 0 <nil>"},
		{alone + "/x", "evilbox.example.com", 0, "a", 403, ""},
		{beside + "/e2b/stream", "", 5000, "a", 200, "/stream 5000 <nil>"},
		{beside + "/e2b/x", "", 0, "", 401, "E2B: who\n"},
		{beside + "/files", "", 0, "a", 200, "/files 0 <nil>"},
		{beside + "/x", "", 0, "a", 404, ""},
		{ports + "/x", port, 0, "a", 200, "/x 0 <nil>"},
		{ports + "/x", port, 0, "a", 429, "E2B: too many requests\n"},
		{ports + "/e2b/x", "", 0, "a", 200, "/x 0 <nil>"}, // has a limit of its own
		{ports + "/x", port, 0, "", 401, ""},              // needs a link
		{few + "/x", "", 0, "b", 200, ""},
		{few + "/x", "", 0, "b", 429, "E2B: too many requests\n"},
		{few + "/x", "", 0, "c", 200, ""},
	} {
		status, body := send(t, tt.url, tt.host, tt.size, tt.key)
		if status != tt.status || tt.body != "" && body != tt.body {
			t.Errorf("%s by %q at %q: status %d, %q; want %d, %q", tt.url, tt.key, tt.host, status, body, tt.status, tt.body)
		}
	}
}
