package network

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestPrivateRanges has sandboxes reach for a range that the operator opened for
// one port, by rules that do not name it.
func TestPrivateRanges(t *testing.T) {
	listed := netip.MustParseAddr("192.0.2.2")
	terms := sandbox.NetworkTerms{Reachable: "192.0.2.2:9001,10.0.0.0/8:5432"}
	for _, c := range []struct {
		network sandbox.Network
		a       netip.Addr
		port    uint16
		why     sandbox.BlockReason // "" is reached
	}{
		{"internet", listed, 9333, sandbox.BlockedPrivate},
		{"internet", listed, 9001, sandbox.BlockedPrivate},
		{"evil.example", privateAddr, 5432, sandbox.BlockedPrivate},
		{"evil.example:5432,internet", privateAddr, 5432, sandbox.BlockedPrivate},
		{"internet,192.0.2.2:9001", listed, 9001, ""},
		{"internet,192.0.2.2:9001", listed, 9333, sandbox.BlockedPolicy},
		{"evil.example,10.1.0.0/16:5432", privateAddr, 5432, ""},
		{"evil.example,10.1.0.0/16:5432", privateAddr, 22, sandbox.BlockedPolicy},
		{"evil.example:22,10.1.0.0/16:5432", privateAddr, 22, sandbox.BlockedPolicy},
		// A rule that the operator's do not cover, however it came to be here.
		{"evil.example,10.0.0.0/8", privateAddr, 22, sandbox.BlockedPolicy},
		{"10.0.0.0/8:22", privateAddr, 22, sandbox.BlockedPolicy},
	} {
		w := newWorld(t, c.network, terms)
		w.setName("evil.example", privateAddr)
		w.serve(c.port, echo, c.a)
		told, _ := w.lookup("evil.example")
		if _, err := w.connect(c.a, c.port); (err == nil) != (c.why == "") {
			t.Errorf("%s: %s port %d: %v", c.network, c.a, c.port, err)
		}
		u := w.udp(c.a, c.port)
		fmt.Fprint(u, "ping")
		if c.why == "" {
			continue
		}
		if !unreachable(u) {
			t.Errorf("%s: %s port %d: datagrams are not refused", c.network, c.a, c.port)
		}
		if len(w.dials()) > 0 {
			t.Errorf("%s: the gateway opened %q", c.network, w.dials())
		}
		if c.why == sandbox.BlockedPrivate && len(told) > 0 {
			t.Errorf("%s: the name's address is told: %v", c.network, told)
		}
		host := c.a.String()
		if len(told) > 0 {
			host = "evil.example" // which the address goes by
		}
		w.wantBlocked(host, c.why)
	}
}

// TestKeptTerms has the terms that were kept by the version before, which had no
// ports: a policy that does not name the range does not reach it by them either.
func TestKeptTerms(t *testing.T) {
	var terms sandbox.NetworkTerms
	if err := json.Unmarshal([]byte(`{"reachable":["192.0.2.2/32","10.0.0.0/8","2001:db8::/32"],"connections":64}`), &terms); err != nil {
		t.Fatal(err)
	}
	if terms.Reachable != "192.0.2.2,10.0.0.0/8,2001:db8::/32" || terms.Connections != 64 {
		t.Errorf("the terms are %+v", terms)
	}
	for network, want := range map[sandbox.Network]bool{"internet": false, "rebind.example": false, "10.1.0.0/16:22": false, "10.1.0.0/16:7000": true} {
		w := newWorld(t, network, terms)
		w.serve(7000, echo, privateAddr)
		if _, err := w.connect(privateAddr, 7000); (err == nil) != want {
			t.Errorf("%s: %v", network, err)
		}
	}
}

// A lenientServer is one of HTTP that forgives what some do: anything before a
// request, any method, any blank between words. It remembers for which hosts it
// was asked.
type lenientServer struct {
	mu    sync.Mutex
	hosts []string
}

func (s *lenientServer) serve(c net.Conn) {
	br := bufio.NewReader(c)
	for {
		line, err := br.ReadString('\n')
		if err != nil {
			return
		}
		words := strings.FieldsFunc(line, func(r rune) bool { return r <= ' ' || r == 0x85 || r == 0xa0 || r == 0xfffd })
		if len(words) < 3 || !strings.HasPrefix(words[len(words)-1], "HTTP/") {
			continue // a preamble, or nothing
		}
		host := ""
		for {
			header, err := br.ReadString('\n')
			if err != nil {
				return
			}
			if header = strings.TrimSpace(header); header == "" {
				break
			}
			if name, value, _ := strings.Cut(header, ":"); strings.EqualFold(name, "Host") {
				host = strings.TrimSpace(value)
			}
		}
		// A host in the target is worth more than the header.
		if _, target, ok := strings.Cut(words[1], "://"); ok && words[1][0] != '/' {
			host, _, _ = strings.Cut(target, "/")
		}
		s.mu.Lock()
		s.hosts = append(s.hosts, host)
		s.mu.Unlock()
		answer := "vhost=" + host
		if strings.Contains(line, "/upgrade") {
			fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
			continue
		}
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(answer), answer)
	}
}

func (s *lenientServer) seen() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.hosts, " ")
}

// TestHiddenRequests has requests for another host of an allowed name's address,
// written so that only a server takes them for HTTP.
func TestHiddenRequests(t *testing.T) {
	const other = " HTTP/1.1\r\nHost: shared.example\r\n\r\n"
	method := strings.Repeat("A", 33)
	requests := map[string]string{
		"a long method":              method + " /" + other,
		"a very long method":         strings.Repeat("A", 9000) + " /" + other,
		"a second one after it":      method + " / HTTP/1.1\r\nHost: web.example\r\n\r\nGET /" + other,
		"a leading blank":            " GET /" + other,
		"leading line ends":          "\r\n\r\nGET /" + other,
		"a vertical tab":             "GET\v/\vHTTP/1.1" + other[9:],
		"a form feed":                "GET\f/\fHTTP/1.1" + other[9:],
		"a blank of Latin-1":         "GET\xa0/\xa0HTTP/1.1" + other[9:],
		"a separator of information": "GET\x1cx\x1cHTTP/1.1" + other[9:],
		"no method of a token":       "<GET> x" + other,
		"an upgrade to HTTP/2":       "GET /upgrade HTTP/1.1\r\nHost: web.example\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\nGET /" + other,
		"an upgrade to two":          "GET /upgrade HTTP/1.1\r\nHost: web.example\r\nConnection: Upgrade\r\nUpgrade: websocket, h2c\r\n\r\nGET /" + other,
		"HTTP/2 at once":             "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nGET /" + other,
		"a proxy's preamble":         "PROXY TCP4 192.0.2.1 192.0.2.2 1000 80\r\nGET /" + other,
		"a newer one":                "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + strings.Repeat("\x01", 12) + "\nGET /" + other,
		"a hello of SSL 2":           "\x80\x2e\x01\x03\x01\n GET /" + other,
		"an alert before it":         "\x15\x03\x01\x00\x02\x01\x00\nGET /" + other,
		"another line before it":     "HELO\r\nGET /" + other,
		"a NUL before it":            "\x00\r\nGET /" + other,
		"an opaque target":           "GET x:http://shared.example/log HTTP/1.1\r\nHost: web.example\r\n\r\n",
		"an opaque target of HTTP":   "GET http:http://shared.example/log HTTP/1.1\r\nHost: web.example\r\n\r\n",
		"a target of FTP":            "GET ftp://web.example/ HTTP/1.1\r\nHost: web.example\r\n\r\n",
		"a user in the target":       "GET http://shared.example@web.example/ HTTP/1.1\r\nHost: web.example\r\n\r\n",
		"CONNECT in lower case":      "connect web.example:x://shared.example HTTP/1.1\r\nHost: web.example\r\n\r\n",
		"a host in place of a port":  "GET / HTTP/1.1\r\nHost: web.example:x.shared.example\r\n\r\n",
	}
	// Where the rule names the port of another protocol, such a line may begin
	// that protocol. Its server must not turn out to be one of HTTP.
	passes := map[string]bool{"another line before it": true, "a NUL before it": true}
	for _, c := range []struct {
		network sandbox.Network
		port    uint16
		named   bool
	}{{"web.example", 80, false}, {"web.example", 9000, false}, {"web.example:80", 80, false}, {"web.example:9000", 9000, true}} {
		for what, request := range requests {
			var s lenientServer
			w := newWorld(t, c.network, sandbox.NetworkTerms{})
			w.serve(c.port, s.serve, webAddr)
			w.mustLookup("web.example")
			conn := w.mustConnect(webAddr, c.port)
			fmt.Fprint(conn, request)
			answer, err := io.ReadAll(conn)
			if isTimeout(err) {
				t.Errorf("%s: %s: the connection does not end", c.network, what)
			}
			if bytes.Contains(answer, []byte("vhost=shared")) || bytes.Contains(answer, []byte("101")) {
				t.Errorf("%s: %s: the answer is %q", c.network, what, answer)
			}
			if strings.Contains(s.seen(), "shared.example") && !(c.named && passes[what]) {
				t.Errorf("%s: %s: the server was asked for %q", c.network, what, s.seen())
			}
			if c.named && passes[what] {
				w.wantBlocked("web.example", sandbox.BlockedOpaque)
			}
		}
	}
}

// TestPipelined has requests behind one another before any is answered.
func TestPipelined(t *testing.T) {
	for _, network := range []sandbox.Network{"web.example", "web.example:9000"} {
		var s lenientServer
		w := newWorld(t, network, sandbox.NetworkTerms{})
		w.serve(9000, s.serve, webAddr)
		w.mustLookup("web.example")
		conn := w.mustConnect(webAddr, 9000)
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: web.example\r\n\r\n"+strings.Repeat("B", 40)+" / HTTP/1.1\r\nHost: shared.example\r\n\r\n")
		answer, _ := io.ReadAll(conn)
		if !bytes.Contains(answer, []byte("vhost=web.example")) || !bytes.Contains(answer, []byte("403 Forbidden")) || s.seen() != "web.example" {
			t.Errorf("%s: the answers are %q, the server was asked for %s", network, answer, s.seen())
		}
		w.wantBlocked("shared.example", sandbox.BlockedHTTPHost)
	}
}

// TestUnnamedPorts has other protocols on ports that no rule names for them.
func TestUnnamedPorts(t *testing.T) {
	for _, c := range []struct {
		network sandbox.Network
		port    uint16
		first   string
	}{
		{"web.example", 22, "SSH-2.0-client\r\n"},
		{"web.example", 5432, "\x00\x00\x00\x08\x04\xd2\x16\x2f"},
		{"web.example:443", 443, "SSH-2.0-client\r\n"},
		{"web.example:80", 80, "EHLO a.example\r\n"},
		{"web.example:8080", 8080, "\x00\x01"},
		{"web.example:22,web.example", 23, "\xff\xfd\x03"},
	} {
		w := newWorld(t, c.network, sandbox.NetworkTerms{})
		got := make(chan string, 1)
		w.serve(c.port, func(conn net.Conn) {
			b, _ := io.ReadAll(conn)
			got <- string(b)
		}, webAddr)
		w.mustLookup("web.example")
		conn := w.mustConnect(webAddr, c.port)
		fmt.Fprint(conn, c.first)
		if _, err := conn.Read(make([]byte, 1)); !ended(err) {
			t.Errorf("%s, port %d: %v", c.network, c.port, err)
		}
		if b := <-got; b != "" {
			t.Errorf("%s, port %d: the server got %q", c.network, c.port, b)
		}
		w.wantBlocked("web.example", sandbox.BlockedOpaque)
	}
}

// TestWebSocket has a connection that becomes a WebSocket's: from then on its
// bytes pass.
func TestWebSocket(t *testing.T) {
	w := newWorld(t, "web.example", sandbox.NetworkTerms{})
	w.serve(9000, func(c net.Conn) {
		br := bufio.NewReader(c)
		for line := ""; line != "\r\n"; {
			var err error
			if line, err = br.ReadString('\n'); err != nil {
				return
			}
		}
		fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n")
		_, _ = io.Copy(c, br)
	}, webAddr)
	w.mustLookup("web.example")
	conn := w.mustConnect(webAddr, 9000)
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: web.example\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n")
	br := bufio.NewReader(conn)
	for line := ""; line != "\r\n"; {
		var err error
		if line, err = br.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(line, "HTTP/") && !strings.Contains(line, " 101 ") {
			t.Fatalf("the answer is %q", line)
		}
	}
	const frame = "\x81\x05hello GET / HTTP/1.1\r\n"
	fmt.Fprint(conn, frame)
	got := make([]byte, len(frame))
	if _, err := io.ReadFull(br, got); err != nil || string(got) != frame {
		t.Errorf("%q, %v", got, err)
	}
}
