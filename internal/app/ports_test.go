package app

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestLocalPorts: over stdio a port is shown on an address that nothing listens
// on before it is asked for, nor after.
func TestLocalPorts(t *testing.T) {
	sys := mustOpen(t, testOptions(t, t.TempDir()))
	sb, err := sys.Engine.Create(t.Context(), sandbox.Local, sandbox.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	// Boxes of the fake driver share this machine's loopback address.
	program := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "the page") }))
	t.Cleanup(program.Close)
	port := program.Listener.Addr().(*net.TCPAddr).Port
	l := sys.localPorts()
	link, expires, err := l.PortURL(t.Context(), sandbox.Local, sb.ID, port, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(expires); left > time.Hour || left < 50*time.Minute {
		t.Errorf("the link is good for %v", left)
	}
	u, err := url.Parse(link)
	if err != nil {
		t.Fatal(err)
	}
	get := func(query, path string) (string, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:"+u.Port()+path+"?"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = u.Host
		req.Close = true
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return resp.Status + " " + string(body), err
	}
	if got, err := get(u.RawQuery, "/"); err != nil || got != "200 OK the page" {
		t.Errorf("by the link: %q, %v", got, err)
	}
	if got, err := get("", "/mcp"); err != nil || !strings.HasPrefix(got, "401 ") {
		t.Errorf("without it: %q, %v", got, err)
	}
	for name, f := range map[string]func() error{
		"not_found": func() error {
			_, _, err := l.PortURL(t.Context(), "mallory", sb.ID, port, time.Hour)
			return err
		},
		"invalid": func() error { _, _, err := l.PortURL(t.Context(), sandbox.Local, sb.ID, 0, time.Hour); return err },
		"conflict": func() error {
			if err := sys.Engine.Stop(context.Background(), sandbox.Local, sb.ID); err != nil {
				return err
			}
			_, _, err := l.PortURL(t.Context(), sandbox.Local, sb.ID, port, time.Hour)
			return err
		},
	} {
		if err := f(); string(sandbox.KindOf(err)) != name {
			t.Errorf("%v; want %s", err, name)
		}
	}
	if err := l.close(); err != nil {
		t.Error(err)
	}
	if got, err := get(u.RawQuery, "/"); err == nil {
		t.Errorf("something still listens: %q", got)
	}
}
