package signin

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestDocuments fetches metadata documents from a server of the test.
func TestDocuments(t *testing.T) {
	var fetched int
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fetched++
		id := "https://client.example" + r.URL.Path
		switch r.URL.Path {
		case "/good", "/again":
			fmt.Fprintf(w, `{"client_id":%q,"client_name":"Good","redirect_uris":["https://client.example/cb"],"token_endpoint_auth_method":"none"}`, id)
		case "/other":
			fmt.Fprint(w, `{"client_id":"https://client.example/good","redirect_uris":["https://client.example/cb"]}`)
		case "/secret":
			fmt.Fprintf(w, `{"client_id":%q,"redirect_uris":["https://client.example/cb"],"token_endpoint_auth_method":"private_key_jwt"}`, id)
		case "/script":
			fmt.Fprintf(w, `{"client_id":%q,"redirect_uris":["javascript:alert(1)"]}`, id)
		case "/long":
			fmt.Fprintf(w, `{"client_id":%q,"client_name":%q}`, id, strings.Repeat("a", maxDocument))
		case "/moved":
			http.Redirect(w, r, "/good", http.StatusFound)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(srv.Close)
	now := time.Now()
	d := newDocuments(func(netip.Addr) bool { return true }, func() time.Time { return now }, slog.New(slog.DiscardHandler))
	d.limit.burst = 1000
	d.web = srv.Client() // has the certificate, and dials the test's server for every name below example.com
	d.web.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	dial := d.web.Transport.(*http.Transport)
	dial.DialContext = nil
	direct := srv.Listener.Addr().String()
	dial.TLSClientConfig.ServerName = "example.com"
	dial.DialContext = dialTo(direct)
	for path, want := range map[string]sandbox.Kind{
		"/good": "", "/other": sandbox.Invalid, "/secret": sandbox.Invalid, "/script": sandbox.Invalid, "/long": sandbox.Invalid,
		"/moved": sandbox.Unavailable, "/missing": sandbox.Unavailable, "": sandbox.Invalid, "/": sandbox.Invalid,
	} {
		c, err := d.client(t.Context(), "a", "https://client.example"+path)
		if want == "" && (err != nil || c.Name != "Good" || c.ID != "https://client.example/good") || want != "" && sandbox.KindOf(err) != want {
			t.Errorf("%q: %+v, %v, want %q", path, c, err, want)
		}
	}
	before := fetched
	if _, err := d.client(t.Context(), "a", "https://client.example/good"); err != nil || fetched != before {
		t.Errorf("a known document: %v, fetched %d times", err, fetched-before)
	}
	now = now.Add(documentTTL)
	if _, err := d.client(t.Context(), "a", "https://client.example/good"); err != nil || fetched != before+1 {
		t.Errorf("an old document: %v, fetched %d times", err, fetched-before)
	}
	// While the host does not answer, an old document counts for a day.
	srv.Close()
	now = now.Add(documentTTL)
	if _, err := d.client(t.Context(), "a", "https://client.example/good"); err != nil {
		t.Errorf("an old document of a host that does not answer: %v", err)
	}
	now = now.Add(keepDocument)
	if _, err := d.client(t.Context(), "a", "https://client.example/good"); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("a document that is too old: %v", err)
	}
	for _, id := range []string{"https://client.example:8443/good", "https://user@client.example/good", "https://client.example/good#x"} {
		if _, err := d.client(t.Context(), "a", id); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// TestDocumentsOnlyFromPublic names addresses to which the server must not connect.
func TestDocumentsOnlyFromPublic(t *testing.T) {
	var log strings.Builder
	d := newDocuments(func(a netip.Addr) bool { return sandbox.Public(a) }, time.Now, slog.New(slog.NewTextHandler(&log, nil)))
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "10.0.0.1", "169.254.169.254", "[::ffff:127.0.0.1]", "0.0.0.0"} {
		log.Reset()
		_, err := d.client(t.Context(), "a", "https://"+host+"/client.json")
		// The stranger does not learn the cause.
		if sandbox.KindOf(err) != sandbox.Unavailable || !strings.HasSuffix(err.Error(), "cannot be fetched") || !strings.Contains(log.String(), "not public") {
			t.Errorf("%s: %v, log %s", host, err, log.String())
		}
	}
	for range documentBurst {
		_, _ = d.client(t.Context(), "b", "https://127.0.0.1/client.json")
	}
	if _, err := d.client(t.Context(), "b", "https://127.0.0.1/client.json"); err == nil || !strings.Contains(err.Error(), "too many") {
		t.Errorf("the fetches of a stranger are not bounded: %v", err)
	}
	if _, err := d.client(t.Context(), "c", "https://127.0.0.1/client.json"); err == nil || strings.Contains(err.Error(), "too many") {
		t.Errorf("one stranger takes the fetches of another: %v", err)
	}
}

// dialTo returns a dialer that connects to addr, whatever the name.
func dialTo(addr string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
}
