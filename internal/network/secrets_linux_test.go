package network

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// What the tests' secret is.
const (
	secretText  = "correct-horse-battery-staple"
	placeholder = "glovebox-secret-API_KEY-placeholder"
	// Another one's, which has so many bytes.
	longPlaceholder = "glovebox-secret-LONG-placeholder"
	longSecret      = 8 << 10
	// One that may be in a header of its own alone.
	ownPlaceholder = "glovebox-secret-OWN-placeholder"
	ownSecret      = "tell-nobody-of-it"
)

// A secretWorld is a world with a secret for web.example, and an HTTPS server
// that all names share and that remembers what it is asked.
type secretWorld struct {
	*world
	public *authority // which everybody outside trusts
	known  *authority // by nobody

	mu   sync.Mutex
	seen []seenRequest
	cert *tls.Certificate // that the server has in place of a good one
}

// A seenRequest is what came to the server.
type seenRequest struct {
	proto, method, host, target, body string
	header                            http.Header
}

func newSecretWorld(t *testing.T, n sandbox.Network) *secretWorld {
	t.Helper()
	w := &secretWorld{}
	var err error
	all := []sandbox.Secret{{Hosts: "web.example,other.example,shared.example"}}
	if w.public, err = newAuthority(all); err != nil {
		t.Fatal(err)
	}
	if w.known, err = newAuthority(all); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.public.pem)
	w.world = newWorldWith(t, Options{
		Network: n, roots: roots,
		Secrets: []sandbox.Secret{
			{Name: "API_KEY", Hosts: "web.example:443", Value: sandbox.NewSecretValue(secretText)},
			{Name: "LONG", Hosts: "web.example:443", Value: sandbox.NewSecretValue(strings.Repeat("x", longSecret))},
			{Name: "OWN", Hosts: "web.example:443", Headers: []string{"X-Own"}, Value: sandbox.NewSecretValue(ownSecret)},
		},
	})
	srv := &http.Server{
		Handler: http.HandlerFunc(w.answer), ReadHeaderTimeout: time.Minute, ErrorLog: stdlog.New(io.Discard, "", 0),
		// Said here, or HTTP/2 would be offered and not spoken if the server of
		// the plain port began first.
		TLSConfig: &tls.Config{NextProtos: httpProtocols, GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.cert != nil {
				return w.cert, nil
			}
			return w.public.certificate(h.ServerName)
		}},
	}
	t.Cleanup(func() { srv.Close() })
	for _, port := range []uint16{443, 8443} {
		l := w.listen(port, webAddr, otherAddr)
		go func() { _ = srv.ServeTLS(l, "", "") }()
	}
	plain := w.listen(80, webAddr)
	go func() { _ = srv.Serve(plain) }()
	w.mustLookup("web.example")
	return w
}

func (w *secretWorld) answer(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.mu.Lock()
	w.seen = append(w.seen, seenRequest{r.Proto, r.Method, r.Host, r.RequestURI, string(body), r.Header.Clone()})
	w.mu.Unlock()
	if r.Header.Get("Upgrade") != "" {
		rw.Header().Set("Connection", "Upgrade")
		rw.Header().Set("Upgrade", r.Header.Get("Upgrade"))
		rw.Header().Set("Sec-WebSocket-Protocol", r.Header.Get("X-Api-Key"))
		rw.WriteHeader(http.StatusSwitchingProtocols)
		c, rest, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.Copy(c, rest)
		return
	}
	if r.URL.Path == "/echo" {
		key, auth := r.Header.Get("X-Api-Key"), r.Header.Get("Authorization")
		rw.Header().Set("Link", "</"+key+">; rel=preload")
		rw.WriteHeader(http.StatusEarlyHints)
		rw.Header().Set("Access-Control-Allow-Origin", "https://"+key)
		rw.Header().Set("X-Upper", strings.ToUpper(key))
		rw.Header().Set("X-Credentials", auth)
		rw.Header().Set("X-"+key, "1")
		rw.Header().Set("Set-Cookie", "session="+key)
		rw.Header().Set("Trailer", "X-Known")
		fmt.Fprint(rw, "echo")
		rw.Header().Set("X-Known", key)
		rw.Header().Set(http.TrailerPrefix+"X-Unknown", key+auth)
		return
	}
	fmt.Fprintf(rw, "hello over %s", r.Proto)
}

// requests returns what the server was asked since the last call.
func (w *secretWorld) requests() []seenRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := w.seen
	w.seen = nil
	return seen
}

// trust returns the settings of a client in the sandbox that trusts its
// authority besides those of the outside.
func (w *secretWorld) trust(name string, protocols ...string) *tls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.public.pem)
	roots.AppendCertsFromPEM(w.g.Authority())
	return &tls.Config{ServerName: name, RootCAs: roots, NextProtos: protocols}
}

// mustTLS opens a connection from within the sandbox.
func (w *secretWorld) mustTLS(a netip.Addr, port uint16, conf *tls.Config) *tls.Conn {
	w.t.Helper()
	c := tls.Client(w.mustConnect(a, port), conf)
	if err := c.Handshake(); err != nil {
		w.t.Fatalf("TLS with %s port %d: %v", conf.ServerName, port, err)
	}
	return c
}

// byGateway reports whether it is the gateway that a client speaks with.
func (w *secretWorld) byGateway(c *tls.Conn) bool {
	return bytes.Equal(c.ConnectionState().PeerCertificates[0].RawIssuer, w.g.inserts.Load().authorities[0].cert.RawSubject) &&
		c.ConnectionState().PeerCertificates[0].CheckSignatureFrom(w.g.inserts.Load().authorities[0].cert) == nil
}

// client returns a client in the sandbox that speaks with an address.
func (w *secretWorld) client(name string, a netip.Addr, port uint16, http2 bool) *http.Client {
	conf := w.trust(name)
	t := &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: http2}
	t.Dial = func(string, string) (net.Conn, error) { return w.connect(a, port) } //nolint:staticcheck // its context is the test's
	w.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t}
}

func TestSecret(t *testing.T) {
	for _, policy := range []sandbox.Network{"web.example", sandbox.NetworkInternet, "web.example:80,93.184.216.34:443"} {
		w := newSecretWorld(t, policy)
		for _, http2 := range []bool{false, true} {
			client := w.client("web.example", webAddr, 443, http2)
			req, _ := http.NewRequest(http.MethodPost, "https://web.example/path?key="+placeholder, strings.NewReader("body "+placeholder))
			req.Header.Set("Authorization", "Bearer "+placeholder)
			req.Header.Set("X-Api-Key", placeholder+","+placeholder)
			req.Header.Set("X-Other", "glovebox-secret-OTHER-placeholder")
			resp, err := client.Do(req)
			if err != nil {
				t.Fatalf("%s, HTTP/2 %v: %v", policy, http2, err)
			}
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			want := map[bool]string{false: "hello over HTTP/1.1", true: "hello over HTTP/2.0"}[http2]
			if string(text) != want {
				t.Errorf("%s: the answer is %q, want %q", policy, text, want)
			}
			seen := w.requests()
			if len(seen) != 1 {
				t.Fatalf("%s: the server saw %d requests", policy, len(seen))
			}
			r := seen[0]
			if got := r.header.Get("Authorization"); got != "Bearer "+secretText {
				t.Errorf("%s: Authorization: %s", policy, got)
			}
			if got := r.header.Get("X-Api-Key"); got != secretText+","+secretText {
				t.Errorf("%s: X-Api-Key: %s", policy, got)
			}
			if got := r.header.Get("X-Other"); got != "glovebox-secret-OTHER-placeholder" {
				t.Errorf("%s: X-Other: %s", policy, got)
			}
			// Where it may be logged, or sent back, it is not put.
			if strings.Contains(r.target+r.body, secretText) || r.target != "/path?key="+placeholder || r.body != "body "+placeholder {
				t.Errorf("%s: the server saw %s and %q", policy, r.target, r.body)
			}
			for name := range r.header {
				if strings.HasPrefix(name, "X-Forwarded") || name == "Via" {
					t.Errorf("%s: the gateway adds the header %s", policy, name)
				}
			}
			req, _ = http.NewRequest(http.MethodGet, "https://web.example/", nil)
			req.SetBasicAuth("user", placeholder)
			if resp, err = client.Do(req); err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			got := w.requests()[0].header.Get("Authorization")
			if got != "Basic "+base64.StdEncoding.EncodeToString([]byte("user:"+secretText)) {
				t.Errorf("%s: Authorization: %s", policy, got)
			}
		}
	}
}

// TestSecretGoesNowhereElse has every other server, port and protocol get the
// placeholder, over connections that are not looked into.
func TestSecretGoesNowhereElse(t *testing.T) {
	w := newSecretWorld(t, sandbox.NetworkInternet)
	w.mustLookup("other.example", "shared.example")
	for _, c := range []struct {
		name string
		addr netip.Addr
		port uint16
	}{
		{"other.example", otherAddr, 443},
		{"shared.example", webAddr, 443}, // of the same address
		{"web.example", webAddr, 8443},   // another port
		{"web.example", otherAddr, 443},  // another address
	} {
		conn := w.mustTLS(c.addr, c.port, w.trust(c.name, "http/1.1"))
		if w.byGateway(conn) {
			t.Errorf("%s at %s port %d: it is the gateway's certificate", c.name, c.addr, c.port)
		}
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: web.example\r\nAuthorization: %s\r\n\r\n", placeholder)
		if _, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
			t.Errorf("%s at %s port %d: %v", c.name, c.addr, c.port, err)
		}
	}
	plain := w.mustConnect(webAddr, 80)
	fmt.Fprintf(plain, "GET / HTTP/1.1\r\nHost: web.example\r\nAuthorization: %s\r\n\r\n", placeholder)
	if _, err := http.ReadResponse(bufio.NewReader(plain), nil); err != nil {
		t.Errorf("in the clear: %v", err)
	}
	seen := w.requests()
	if len(seen) != 5 {
		t.Errorf("the server saw %d requests", len(seen))
	}
	for _, r := range seen {
		if got := r.header.Get("Authorization"); got != placeholder {
			t.Errorf("%s: Authorization: %s", r.host, got)
		}
	}
	// Another protocol in TLS is the server's own.
	w.g.inserts.Load().authorities[0].leaves = nil // a certificate of it would be a panic
	if c := tls.Client(w.mustConnect(webAddr, 443), w.trust("web.example", "imap")); c.Handshake() == nil {
		t.Error("the server speaks imap")
	}
}

// TestSecretServer has servers that do not prove to be who they should.
func TestSecretServer(t *testing.T) {
	w := newSecretWorld(t, "web.example")
	unknown, err := w.known.certificate("web.example")
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := w.public.certificate("other.example")
	if err != nil {
		t.Fatal(err)
	}
	for what, cert := range map[string]*tls.Certificate{"unknown authority": unknown, "other.example": wrong} {
		w.mu.Lock()
		w.cert = cert
		w.mu.Unlock()
		for _, http2 := range []bool{false, true} {
			req, _ := http.NewRequest(http.MethodGet, "https://web.example/", nil)
			req.Header.Set("Authorization", placeholder)
			resp, err := w.client("web.example", webAddr, 443, http2).Do(req)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != http.StatusBadGateway || !strings.Contains(string(text), "certificate") || !strings.Contains(string(text), what) {
				t.Errorf("%s: %d %s", what, resp.StatusCode, text)
			}
		}
	}
	if seen := w.requests(); len(seen) != 0 {
		t.Errorf("such a server saw %+v", seen)
	}
	w.wantBlocked("web.example", sandbox.BlockedCertificate)
}

// TestSecretRequests has clients that try to have a request understood in two
// ways, or to have the secret said again.
func TestSecretRequests(t *testing.T) {
	w := newSecretWorld(t, "web.example,other.example")
	w.mustLookup("other.example")
	auth := "Authorization: " + placeholder + "\r\n"
	for what, c := range map[string]struct {
		send   string
		status int // of the last answer; 0 is none
		seen   int // requests that reach the server
	}{
		"another host":         {"GET / HTTP/1.1\r\nHost: other.example\r\n" + auth + "\r\n", 403, 0},
		"no host":              {"GET / HTTP/1.1\r\n" + auth + "\r\n", 400, 0},
		"two hosts":            {"GET / HTTP/1.1\r\nHost: web.example\r\nHost: other.example\r\n" + auth + "\r\n", 400, 0},
		"a host in the target": {"GET https://other.example/ HTTP/1.1\r\nHost: web.example\r\n" + auth + "\r\n", 403, 0},
		"CONNECT":              {"CONNECT web.example:443 HTTP/1.1\r\nHost: web.example\r\n" + auth + "\r\n", 403, 0},
		"TRACE":                {"TRACE / HTTP/1.1\r\nHost: web.example\r\n" + auth + "\r\n", 405, 0},
		"trace":                {"trace / HTTP/1.1\r\nHost: web.example\r\n" + auth + "\r\n", 405, 0},
		"an opaque target":     {"GET x:http://other.example/log HTTP/1.1\r\nHost: web.example\r\n" + auth + "\r\n", 403, 0},
		"one of HTTP":          {"GET http:http://other.example/log HTTP/1.1\r\nHost: web.example\r\n" + auth + "\r\n", 403, 0},
		"another scheme":       {"GET ftp://web.example/ HTTP/1.1\r\nHost: web.example\r\n" + auth + "\r\n", 403, 0},
		"a user in the target": {"GET https://me@web.example/ HTTP/1.1\r\nHost: web.example\r\n" + auth + "\r\n", 403, 0},
		"no port":              {"GET / HTTP/1.1\r\nHost: web.example:x.other.example\r\n" + auth + "\r\n", 403, 0},
		"another port":         {"GET / HTTP/1.1\r\nHost: web.example:8443\r\n" + auth + "\r\n", 403, 0},
		"a name in brackets":   {"GET / HTTP/1.1\r\nHost: [web.example]:443\r\n" + auth + "\r\n", 403, 0},
		"two lengths":          {"POST / HTTP/1.1\r\nHost: web.example\r\nContent-Length: 5\r\nContent-Length: 6\r\n" + auth + "\r\nhello!", 400, 0},
		"a length and chunks":  {"POST / HTTP/1.1\r\nHost: web.example\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n" + auth + "\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: other.example\r\n\r\n", 200, 1},
		"unknown chunks":       {"POST / HTTP/1.1\r\nHost: web.example\r\nTransfer-Encoding: chunked, identity\r\n" + auth + "\r\n0\r\n\r\n", 501, 0},
		"a space before colon": {"GET / HTTP/1.1\r\nHost: web.example\r\nX-A : b\r\n" + auth + "\r\n", 400, 0},
		"a CR in a value":      {"GET / HTTP/1.1\r\nHost: web.example\r\nX-A: a\rHost: other.example\r\n" + auth + "\r\n", 400, 0},
		"a folded line":        {"GET / HTTP/1.1\r\nHost: web.example\r\nX-Api-Key: a\r\n " + auth + "\r\n", 200, 1},
		"a line folded on":     {"GET / HTTP/1.1\r\nHost: web.example\r\nX-A: a\r\n " + auth + "\r\n", 403, 0},
		"a huge header":        {"GET / HTTP/1.1\r\nHost: web.example\r\nX-A: " + strings.Repeat("a", 2*maxRequestHeader) + "\r\n" + auth + "\r\n", 431, 0},
		"two requests at once": {"GET / HTTP/1.1\r\nHost: web.example\r\n" + auth + "\r\nGET / HTTP/1.1\r\nHost: other.example\r\n" + auth + "\r\n", 403, 1},
		"no HTTP":              {"EHLO web.example\r\n" + auth + "\r\n", 400, 0},
	} {
		conn := w.mustTLS(webAddr, 443, w.trust("web.example", "http/1.1"))
		go func() { _, _ = io.WriteString(conn, c.send) }()
		r := bufio.NewReader(conn)
		status := 0
		for range 1 + strings.Count(c.send, "GET ")/2 {
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				if !ended(err) {
					t.Errorf("%s: %v", what, err)
				}
				break
			}
			text, _ := io.ReadAll(resp.Body)
			if strings.Contains(string(text), secretText) {
				t.Errorf("%s: the answer has the secret", what)
			}
			status = resp.StatusCode
		}
		conn.Close()
		if status != c.status {
			t.Errorf("%s: status %d, want %d", what, status, c.status)
		}
		seen := w.requests()
		if len(seen) != c.seen {
			t.Errorf("%s: the server saw %d requests: %+v", what, len(seen), seen)
		}
		for _, s := range seen {
			if s.host != "web.example" {
				t.Errorf("%s: the server saw a request for %s", what, s.host)
			}
		}
	}
	w.wantBlocked("other.example", sandbox.BlockedHTTPHost)
	// HTTP/2 says the host in another way.
	req, _ := http.NewRequest(http.MethodGet, "https://web.example/", nil)
	req.Host = "other.example"
	req.Header.Set("Authorization", placeholder)
	if resp, err := w.client("web.example", webAddr, 443, true).Do(req); err == nil {
		resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("another authority: status %d", resp.StatusCode)
		}
	}
	if seen := w.requests(); len(seen) != 0 {
		t.Errorf("another authority: the server saw %+v", seen)
	}
}

// TestSecretHeaders has programs put a placeholder into headers that hosts send
// back.
func TestSecretHeaders(t *testing.T) {
	w := newSecretWorld(t, "web.example")
	basic := func(text string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(text)) }
	for _, http2 := range []bool{false, true} {
		client := w.client("web.example", webAddr, 443, http2)
		for name, c := range map[string]struct {
			sent, arrives string // "" is refused
		}{
			"Authorization":                  {basic("me:" + placeholder), basic("me:" + secretText)},
			"X-Api-Key":                      {placeholder, secretText},
			"Cookie":                         {"session=" + placeholder, "session=" + secretText},
			"X-Own":                          {ownPlaceholder, ownSecret},
			"Origin":                         {"https://" + placeholder, ""},
			"Access-Control-Request-Headers": {placeholder, ""},
			"X-Request-Id":                   {placeholder, ""},
			"User-Agent":                     {placeholder, ""},
			"Referer":                        {"https://web.example/" + placeholder, ""},
			"If-None-Match":                  {`"` + placeholder + `"`, ""},
			"Accept-Language":                {placeholder, ""},
			"X-Plain":                        {"nothing", "nothing"},
		} {
			req, _ := http.NewRequest(http.MethodGet, "https://web.example/", nil)
			req.Header.Set(name, c.sent)
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			seen := w.requests()
			if c.arrives == "" {
				if resp.StatusCode != http.StatusForbidden || len(seen) != 0 ||
					!strings.Contains(string(text), "secret API_KEY") || !strings.Contains(string(text), "--secret-header "+name) {
					t.Errorf("%s: %s %q; the server saw %+v", name, resp.Status, text, seen)
				}
				continue
			}
			if resp.StatusCode != http.StatusOK || len(seen) != 1 || seen[0].header.Get(name) != c.arrives {
				t.Errorf("%s: %s; the server saw %+v", name, resp.Status, seen)
			}
		}
		// A secret that names its headers is in no other.
		req, _ := http.NewRequest(http.MethodGet, "https://web.example/", nil)
		req.Header.Set("Authorization", basic("me:"+ownPlaceholder))
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if seen := w.requests(); resp.StatusCode != http.StatusForbidden || len(seen) != 0 {
			t.Errorf("a secret in a header of another: %s; the server saw %+v", resp.Status, seen)
		}
	}
	w.wantBlocked("web.example", sandbox.BlockedHeader)
}

// TestSecretEcho has a host send back what it was sent, in all that is before and
// after a body.
func TestSecretEcho(t *testing.T) {
	w := newSecretWorld(t, "web.example")
	for _, http2 := range []bool{false, true} {
		req, _ := http.NewRequest(http.MethodGet, "https://web.example/echo", nil)
		req.SetBasicAuth("me", placeholder)
		req.Header.Set("X-Api-Key", placeholder)
		var hints []string
		trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
			hints = append(hints, fmt.Sprint(code, header))
			return nil
		}}
		resp, err := w.client("web.example", webAddr, 443, http2).Do(req.WithContext(httptrace.WithClientTrace(t.Context(), trace)))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(body) != "echo" {
			t.Errorf("the body is %q, %v", body, err)
		}
		all := fmt.Sprint(hints, resp.Status, resp.Header, resp.Trailer)
		encoded := base64.StdEncoding.EncodeToString([]byte("me:" + secretText))
		if strings.Contains(strings.ToLower(all), secretText) || strings.Contains(all, encoded) || strings.Contains(all, encoded[4:len(encoded)-4]) {
			t.Errorf("HTTP/2 %v: the answer has the secret: %s", http2, all)
		}
		for what, got := range map[string]string{
			"hint": strings.Join(hints, " "), "header": resp.Header.Get("Access-Control-Allow-Origin"), "upper case": resp.Header.Get("X-Upper"),
			"cookie": resp.Header.Get("Set-Cookie"), "trailer": resp.Trailer.Get("X-Known"), "unannounced trailer": resp.Trailer.Get("X-Unknown"),
		} {
			if !strings.Contains(got, placeholder) {
				t.Errorf("HTTP/2 %v: the %s is %q", http2, what, got)
			}
		}
	}
	// An answer that ends HTTP.
	conn := w.mustTLS(webAddr, 443, w.trust("web.example", "http/1.1"))
	fmt.Fprintf(conn, "GET /echo HTTP/1.1\r\nHost: web.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Api-Key: %s\r\n\r\n", placeholder)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", resp, err)
	}
	if got := resp.Header.Get("Sec-Websocket-Protocol"); got != placeholder || strings.Contains(resp.Status, secretText) {
		t.Errorf("%s, %q", resp.Status, got)
	}
}

// TestSecretMemory has clients whose short requests would take much memory with
// the secrets in them, which is this machine's.
func TestSecretMemory(t *testing.T) {
	w := newSecretWorld(t, "web.example")
	const fit = 200 << 10 / longSecret
	basic := func(text string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(text)) }
	for _, http2 := range []bool{false, true} {
		client := w.client("web.example", webAddr, 443, http2)
		for what, c := range map[string]struct {
			value  string
			status int
		}{
			"some":              {strings.Repeat(longPlaceholder, fit), http.StatusOK},
			"too many":          {strings.Repeat(longPlaceholder, 1000), http.StatusRequestHeaderFieldsTooLarge},
			"too many in Basic": {basic("me:" + strings.Repeat(longPlaceholder, 1000)), http.StatusRequestHeaderFieldsTooLarge},
			"some in Basic":     {basic("me:" + strings.Repeat(longPlaceholder, fit/2)), http.StatusOK},
		} {
			req, _ := http.NewRequest(http.MethodGet, "https://web.example/", nil)
			req.Header.Set("Authorization", c.value)
			resp, err := client.Do(req)
			if err != nil {
				t.Errorf("%s: %v", what, err)
				continue
			}
			resp.Body.Close()
			if seen := w.requests(); resp.StatusCode != c.status || (c.status == http.StatusOK) != (len(seen) == 1) {
				t.Errorf("%s: status %d, want %d; the server saw %d", what, resp.StatusCode, c.status, len(seen))
			}
		}
	}
	// Many at a time, of which each is small enough.
	for deadline := time.Now().Add(10 * time.Second); w.g.headers.Load() != 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond) // the last one's end may be known to its client first
	}
	if held := w.g.headers.Load(); held != 0 {
		t.Errorf("%d bytes are held by requests that have ended", held)
	}
	w.g.headers.Add(maxHeaders - longSecret)
	for want, value := range map[int]string{http.StatusServiceUnavailable: longPlaceholder + longPlaceholder, http.StatusOK: placeholder} {
		req, _ := http.NewRequest(http.MethodGet, "https://web.example/", nil)
		req.Header.Set("Authorization", value)
		resp, err := w.client("web.example", webAddr, 443, true).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("where little is left: status %d, want %d", resp.StatusCode, want)
		}
	}
}

func TestSecretUpgrade(t *testing.T) {
	w := newSecretWorld(t, "web.example")
	conn := w.mustTLS(webAddr, 443, w.trust("web.example", "http/1.1"))
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: web.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nAuthorization: %s\r\n\r\n", placeholder)
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", resp, err)
	}
	if seen := w.requests(); len(seen) != 1 || seen[0].header.Get("Authorization") != secretText {
		t.Errorf("the server saw %+v", seen)
	}
	// From here on it is not HTTP.
	if _, err := io.WriteString(conn, placeholder); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(placeholder))
	if _, err := io.ReadFull(r, got); err != nil || string(got) != placeholder {
		t.Errorf("%q, %v", got, err)
	}
}

// TestSecretChange has a connection that the policy no longer allows.
func TestSecretChange(t *testing.T) {
	w := newSecretWorld(t, "web.example,other.example")
	conn := w.mustTLS(webAddr, 443, w.trust("web.example", "http/1.1"))
	if err := w.g.SetNetwork("other.example"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !ended(err) {
		t.Errorf("after the change: %v", err)
	}
}

func TestAuthority(t *testing.T) {
	a, err := newAuthority([]sandbox.Secret{{Hosts: "web.example:8443"}, {Hosts: "*.wide.example"}})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(a.pem), "PRIVATE") || strings.Count(string(a.pem), "BEGIN") != 1 {
		t.Errorf("it shows %s", a.pem)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.pem)
	for name, want := range map[string]bool{"web.example": true, "a.wide.example": true, "other.example": false, "example": false} {
		c, err := a.certificate(name)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots})
		var bad x509.CertificateInvalidError
		if (err == nil) != want || !want && !errors.As(err, &bad) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i := range 3 * maxLeaves {
		if _, err := a.certificate(fmt.Sprintf("h%d.wide.example", i)); err != nil {
			t.Fatal(err)
		}
	}
	if len(a.leaves) > maxLeaves {
		t.Errorf("it keeps %d certificates", len(a.leaves))
	}
	first, _ := a.certificate("web.example")
	again, _ := a.certificate("web.example")
	if !slices.Equal(first.Certificate[0], again.Certificate[0]) {
		t.Error("it makes a certificate twice")
	}
}
