package network

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestAllowedByAddress(t *testing.T) {
	w := newWorld(t, "10.1.2.0/24:7000,104.16.0.9", sandbox.NetworkTerms{Reachable: "10.0.0.0/8"})
	w.serve(7000, echo, privateAddr, otherAddr, webAddr)
	for _, a := range []netip.Addr{privateAddr, otherAddr} {
		c := w.mustConnect(a, 7000)
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 5)
		if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "hello" {
			t.Fatalf("%s answers %q, %v", a, buf, err)
		}
		c.Close()
	}
	for _, to := range []struct {
		a    netip.Addr
		port uint16
		why  sandbox.BlockReason
	}{
		{privateAddr, 7001, sandbox.BlockedPolicy},
		{webAddr, 7000, sandbox.BlockedPolicy},
		{metadataAddr, 80, sandbox.BlockedPrivate},
		{netip.MustParseAddr("10.200.0.1"), 7000, sandbox.BlockedPrivate},
		{netip.MustParseAddr("fd00:ec2::254"), 80, sandbox.BlockedPrivate},
		{netip.MustParseAddr("64:ff9b::a9fe:a9fe"), 80, sandbox.BlockedPrivate},
		{hostAddr, 80, sandbox.BlockedHost},
		{Gateway4.Addr(), 80, sandbox.BlockedPrivate},
	} {
		_, err := w.connect(to.a, to.port)
		if err == nil {
			t.Errorf("%s port %d is reached", to.a, to.port)
			continue
		}
		w.wantBlocked(to.a.String(), to.why)
	}
	if d := w.dials(); len(d) != 2 {
		t.Errorf("the gateway opened %q, want what was allowed and nothing else", d)
	}
}

func TestInternet(t *testing.T) {
	w := newWorld(t, sandbox.NetworkInternet, sandbox.NetworkTerms{})
	w.serve(80, echo, webAddr, web6Addr)
	w.mustConnect(webAddr, 80)
	w.mustConnect(web6Addr, 80)
	w.mustLookup("web.example")
	w.mustConnect(webAddr, 80)
	for a, why := range map[string]sandbox.BlockReason{
		"10.1.2.3": sandbox.BlockedPrivate, "169.254.169.254": sandbox.BlockedPrivate,
		"104.20.0.1": sandbox.BlockedHost, "100.100.100.200": sandbox.BlockedPrivate, "fd00:ec2::254": sandbox.BlockedPrivate,
	} {
		if _, err := w.connect(netip.MustParseAddr(a), 80); err == nil {
			t.Errorf("%s is reached", a)
		}
		w.wantBlocked(a, why)
	}
	// DNS is ours alone.
	for _, to := range []string{"8.8.8.8:53", "93.184.216.34:53", "8.8.8.8:443", "1.1.1.1:443", "93.184.216.34:853"} {
		ap := netip.MustParseAddrPort(to)
		if _, err := w.connect(ap.Addr(), ap.Port()); err == nil {
			t.Errorf("%s is reached", to)
		}
	}
	w.wantBlocked("8.8.8.8", sandbox.BlockedResolver)
	if _, err := w.lookup("dns.google"); err == nil {
		t.Error("the name of a public DNS server is resolved")
	}
	w.wantBlocked("dns.google", sandbox.BlockedResolver)
}

// TestDenied denies one address of a network that is otherwise open, to names too,
// and ends the connections of an address that is denied later.
func TestDenied(t *testing.T) {
	w := newWorld(t, "internet,!"+sandbox.Network(webAddr.String()), sandbox.NetworkTerms{})
	w.serve(80, echo, webAddr, web6Addr)
	if _, err := w.connect(webAddr, 80); err == nil {
		t.Error("the denied address is reached")
	}
	w.wantBlocked(webAddr.String(), sandbox.BlockedPolicy)
	if got, err := w.lookup("web.example"); err != nil || !slices.Equal(got, []netip.Addr{web6Addr}) {
		t.Errorf("a name with the denied address gives %v, %v", got, err)
	}
	w.wantBlocked("web.example", sandbox.BlockedPolicy)
	c := w.mustConnect(web6Addr, 80)
	if _, err := c.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if got := make([]byte, 5); readFull(t, c, got) != "hello" {
		t.Errorf("the other address answers %q", got)
	}
	if err := w.g.SetNetwork("internet,!" + sandbox.Network(web6Addr.String())); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); err == nil {
		t.Errorf("the connection to an address that is denied now gives %d bytes", n)
	}
	if _, err := w.connect(web6Addr, 80); err == nil {
		t.Error("the address that is denied now is reached")
	}
	w.mustConnect(webAddr, 80)
}

// TestThisMachine reaches programs on the loopback addresses of the machine, on
// the ports that both the sandbox's policy and the operator name.
func TestThisMachine(t *testing.T) {
	w := newWorld(t, "internet,host.glovebox.internal:5432,host.glovebox.internal:5433,host.glovebox.internal:22",
		sandbox.NetworkTerms{Reachable: "host.glovebox.internal:5432,host.glovebox.internal:5433,host.glovebox.internal:9001"})
	w.serve(5432, echo, netip.MustParseAddr("127.0.0.1"))
	w.serve(5433, echo, netip.IPv6Loopback())
	for _, port := range []uint16{22, 9001} {
		w.serve(port, echo, netip.MustParseAddr("127.0.0.1"))
	}
	addrs, err := w.lookup(sandbox.ThisMachine)
	if err != nil || len(addrs) != 1 {
		t.Fatalf("%v, %v", addrs, err)
	}
	for _, port := range []uint16{5432, 5433} {
		c := w.mustConnect(addrs[0], port)
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if got := make([]byte, 5); readFull(t, c, got) != "hello" {
			t.Errorf("port %d: %q", port, got)
		}
	}
	for _, port := range []uint16{22, 80, 9001} {
		if _, err := w.connect(addrs[0], port); err == nil {
			t.Errorf("port %d is reached", port)
		}
	}
	w.wantBlocked(sandbox.ThisMachine, sandbox.BlockedHost)
	if err := w.g.SetNetwork(sandbox.NetworkInternet); err != nil {
		t.Fatal(err)
	}
	if addrs, err := w.lookup(sandbox.ThisMachine); err == nil {
		t.Errorf("without a rule the name is resolved: %v", addrs)
	}
	if _, err := w.connect(addrs[0], 5432); err == nil {
		t.Error("without a rule the machine is reached")
	}
	if asked := strings.Join(w.asked, " "); strings.Contains(asked, "internal") {
		t.Errorf("upstream was asked for %s", asked)
	}
}

func readFull(t *testing.T, c net.Conn, b []byte) string {
	t.Helper()
	if _, err := io.ReadFull(c, b); err != nil {
		t.Error(err)
	}
	return string(b)
}

func TestNames(t *testing.T) {
	w := newWorld(t, "web.example:80,*.web.example,rebind.example,half.example,machine.example,mapped.example", sandbox.NetworkTerms{})
	for name, want := range map[string][]netip.Addr{
		"web.example": {webAddr, web6Addr}, "WEB.Example": {webAddr, web6Addr}, "a.web.example": {webAddr}, "half.example": {webAddr},
		"other.example": nil, "rebind.example": nil, "machine.example": nil, "mapped.example": nil, "missing.web.example": nil,
		"localhost": nil, "web.example.evil.example": nil, "169.254.169.254": nil, "notweb.example": nil,
	} {
		got, err := w.lookup(name)
		slices.SortFunc(got, netip.Addr.Compare)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, want)
		}
	}
	w.mu.Lock()
	asked := strings.Join(w.asked, " ")
	w.mu.Unlock()
	for _, name := range []string{"other.example", "evil", "localhost", "169"} {
		if strings.Contains(asked, name) {
			t.Errorf("upstream was asked for what is not allowed: %s", asked)
		}
	}
	w.wantBlocked("other.example", sandbox.BlockedPolicy)
	w.wantBlocked("rebind.example", sandbox.BlockedPrivate)
	w.wantBlocked("half.example", sandbox.BlockedPrivate)
	w.wantBlocked("machine.example", sandbox.BlockedHost)
	w.wantBlocked("missing.web.example", sandbox.BlockedUnresolved)
	if w.blocked("rebind.example", sandbox.BlockedUnresolved) || w.blocked("web.example", sandbox.BlockedUnresolved) {
		t.Error("a name with an address counts as not resolved")
	}
}

// TestRebinding has a name change to what must not be reached, after it was
// resolved and while its address is known.
func TestRebinding(t *testing.T) {
	w := newWorld(t, "web.example", sandbox.NetworkTerms{})
	w.serve(7000, echo, webAddr, privateAddr)
	w.mustLookup("web.example")
	w.setName("web.example", privateAddr)
	w.mustConnect(webAddr, 7000)
	if _, err := w.connect(privateAddr, 7000); err == nil {
		t.Error("the private address is reached")
	}
	for range 3 {
		if got, _ := w.lookup("web.example"); slices.Contains(got, privateAddr) {
			t.Errorf("the private address is told: %v", got)
		}
	}
}

func TestOtherDNSServers(t *testing.T) {
	w := newWorld(t, "web.example,8.8.4.4:53", sandbox.NetworkTerms{})
	w.serve(53, echo, webAddr, netip.MustParseAddr("8.8.4.4"))
	w.mustLookup("web.example")
	if _, err := w.connect(webAddr, 53); err == nil {
		t.Error("port 53 of an allowed host is reached")
	}
	w.wantBlocked("web.example", sandbox.BlockedResolver)
	w.mustConnect(netip.MustParseAddr("8.8.4.4"), 53) // it was allowed by name
}

func TestHTTPHost(t *testing.T) {
	w := newWorld(t, "web.example,a.web.example", sandbox.NetworkTerms{})
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(rw, "%s %s %s", r.Method, r.Host, r.URL)
	}))
	srv.Start()
	defer srv.Close()
	w.servers["tcp 93.184.216.34:80"] = srv.Listener.Addr().String()
	w.mustLookup("web.example", "a.web.example")

	c := w.mustConnect(webAddr, 80)
	br := bufio.NewReader(c)
	for _, host := range []string{"web.example", "A.Web.Example:80"} { // on one connection
		fmt.Fprintf(c, "GET /x HTTP/1.1\r\nHost: %s\r\n\r\n", host)
		res, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		if res.StatusCode != 200 || string(body) != "GET "+host+" /x" {
			t.Errorf("%s: %s %q", host, res.Status, body)
		}
	}
	fmt.Fprintf(c, "GET /x HTTP/1.1\r\nHost: shared.example\r\n\r\n")
	res, err := http.ReadResponse(br, nil)
	if err != nil || res.StatusCode != http.StatusForbidden {
		t.Errorf("another host on the same connection: %v, %v", res, err)
	}
	w.wantBlocked("shared.example", sandbox.BlockedHTTPHost)

	before := len(w.dials())
	for name, request := range map[string]string{
		"another host":      "GET / HTTP/1.1\r\nHost: shared.example\r\n\r\n",
		"an address":        "GET / HTTP/1.1\r\nHost: 93.184.216.34\r\n\r\n",
		"no host":           "GET / HTTP/1.0\r\n\r\n",
		"two hosts":         "GET / HTTP/1.1\r\nHost: web.example\r\nHost: shared.example\r\n\r\n",
		"another URL":       "GET http://shared.example/ HTTP/1.1\r\nHost: web.example\r\n\r\n",
		"line ends first":   "\r\n\r\nGET / HTTP/1.1\r\nHost: shared.example\r\n\r\n",
		"a method's case":   "get / HTTP/1.1\r\nHost: shared.example\r\n\r\n",
		"tabs":              "GET\t/\tHTTP/1.1\r\nHost: shared.example\r\n\r\n",
		"a folded host":     "GET / HTTP/1.1\r\nHost:\r\n shared.example\r\n\r\n",
		"CONNECT":           "CONNECT shared.example:443 HTTP/1.1\r\nHost: shared.example:443\r\n\r\n",
		"CONNECT to itself": "CONNECT web.example:443 HTTP/1.1\r\nHost: web.example:443\r\n\r\n",
		"HTTP/2":            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"a request within":  "GET / HTTP/1.1\r\nHost: shared.example\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: shared.example\r\n\r\n",
	} {
		c := w.mustConnect(webAddr, 80)
		fmt.Fprint(c, request)
		answer, err := io.ReadAll(c)
		if bytes.Contains(answer, []byte("200 OK")) {
			t.Errorf("%s reaches the server: %q", name, answer)
		}
		if err != nil && isTimeout(err) {
			t.Errorf("%s: the connection does not end", name)
		}
	}
	for _, d := range w.dials()[before:] {
		if d != "tcp 93.184.216.34:80" {
			t.Errorf("the gateway opened %s", d)
		}
	}
}

// TestRedirect: where a server sends a program is a new connection.
func TestRedirect(t *testing.T) {
	w := newWorld(t, "web.example", sandbox.NetworkTerms{})
	w.serve(80, func(c net.Conn) {
		if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			fmt.Fprintf(c, "HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254%s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", r.URL)
		}
	}, webAddr)
	w.mustLookup("web.example")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(_ context.Context, _, addr string) (net.Conn, error) {
		host, _, _ := net.SplitHostPort(addr)
		if host == "web.example" {
			host = webAddr.String()
		}
		return w.connect(netip.MustParseAddr(host), 80)
	}}}
	if _, err := client.Get("http://web.example/latest/meta-data/"); !refused(err) {
		t.Errorf("following the redirect: %v, want it refused", err)
	}
	w.wantBlocked("169.254.169.254", sandbox.BlockedPrivate)
}

func TestTLSServerName(t *testing.T) {
	w := newWorld(t, "web.example,a.web.example", sandbox.NetworkTerms{})
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprint(rw, r.TLS.ServerName)
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	w.servers["tcp 93.184.216.34:443"] = srv.Listener.Addr().String()
	w.mustLookup("web.example", "a.web.example")
	get := func(conf *tls.Config) (string, error) {
		conf.InsecureSkipVerify = true
		client := &http.Client{Transport: &http.Transport{
			TLSClientConfig: conf, ForceAttemptHTTP2: true, DisableKeepAlives: true,
			DialContext: func(context.Context, string, string) (net.Conn, error) { return w.connect(webAddr, 443) },
		}}
		res, err := client.Get("https://web.example/")
		if err != nil {
			return "", err
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		return string(b), err
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, name := range []string{"web.example", "a.web.example"} {
			got, err := get(&tls.Config{ServerName: name, MaxVersion: version})
			if err != nil || got != name {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		}
		if _, err := get(&tls.Config{ServerName: "shared.example", MaxVersion: version}); err == nil || !strings.Contains(err.Error(), "unrecognized name") {
			t.Errorf("another tenant of the same address: %v", err)
		}
		if _, err := get(&tls.Config{ServerName: "93.184.216.34", MaxVersion: version}); err == nil {
			t.Error("without a server name it is reached")
		}
	}
	w.wantBlocked("shared.example", sandbox.BlockedServerName)
	w.wantBlocked("a.web.example", sandbox.BlockedServerName) // without one it goes by the latest name
}

// TestOtherProtocols has protocols whose names cannot be seen, in which either
// side speaks first: they pass where the rule names their port.
func TestOtherProtocols(t *testing.T) {
	w := newWorld(t, "web.example:22,web.example:25,web.example:3306,web.example:5432,web.example:6379", sandbox.NetworkTerms{})
	w.mustLookup("web.example")
	for port, c := range map[uint16]struct{ greeting, first, answer string }{
		22:   {"SSH-2.0-test\r\n", "SSH-2.0-client\r\n", "\x00\x00\x01"},
		25:   {"220 mail.example ESMTP\r\n", "EHLO a.example\r\n", "250 ok\r\n"},
		3306: {"\x4a\x00\x00\x00\x0a8.0", "\xb4\x00\x00\x01\x85", "\x07\x00\x00\x02"}, // MySQL
		5432: {"", "\x00\x00\x00\x08\x04\xd2\x16\x2f", "S"},                           // PostgreSQL
		6379: {"", "*1\r\n$4\r\nPING\r\n", "+PONG\r\n"},
	} {
		w.serve(port, func(conn net.Conn) {
			fmt.Fprint(conn, c.greeting)
			if _, err := io.ReadFull(conn, make([]byte, len(c.first))); err != nil {
				return
			}
			fmt.Fprint(conn, c.answer)
			echo(conn)
		}, webAddr)
		conn := w.mustConnect(webAddr, port)
		for _, step := range []struct{ read, write string }{{c.greeting, c.first}, {c.answer, "more"}, {"more", ""}} {
			got := make([]byte, len(step.read))
			if _, err := io.ReadFull(conn, got); err != nil || string(got) != step.read {
				t.Fatalf("port %d: %q, %v; want %q", port, got, err, step.read)
			}
			fmt.Fprint(conn, step.write)
		}
		conn.(interface{ CloseWrite() error }).CloseWrite()
		if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("port %d, after the end: %v", port, err)
		}
	}
	for _, d := range w.g.Traffic(0).Destinations {
		if d.Blocked != "" {
			t.Errorf("blocked: %+v", d)
		}
	}
}

func TestUDP(t *testing.T) {
	w := newWorld(t, "web.example,104.16.0.9", sandbox.NetworkTerms{})
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	got := make(chan string, 100)
	go func() {
		buf := make([]byte, 65536)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			got <- string(buf[:n])
			_, _ = pc.WriteTo(buf[:n], from)
		}
	}()
	for _, a := range []string{"93.184.216.34:5000", "93.184.216.34:443", "104.16.0.9:443"} {
		w.servers["udp "+a] = pc.LocalAddr().String()
	}
	w.mustLookup("web.example")
	for _, to := range []string{"93.184.216.34:5000", "104.16.0.9:443"} {
		ap := netip.MustParseAddrPort(to)
		c := w.udp(ap.Addr(), ap.Port())
		fmt.Fprint(c, "ping")
		buf := make([]byte, 10)
		if n, err := c.Read(buf); err != nil || string(buf[:n]) != "ping" {
			t.Errorf("%s: %q, %v", to, buf[:n], err)
		}
		<-got
	}
	// QUIC hides its server's name: not for what is allowed by name.
	c := w.udp(webAddr, 443)
	fmt.Fprint(c, "\xc0\x00\x00\x00\x01"+strings.Repeat("x", 1200))
	w.wantBlocked("web.example", sandbox.BlockedQUIC)
	c = w.udp(webAddr, 5000)
	fmt.Fprint(c, "\xc0\x00\x00\x00\x01"+strings.Repeat("x", 1200))
	// And what is not allowed is refused at once.
	c = w.udp(privateAddr, 5000)
	fmt.Fprint(c, "ping")
	if !unreachable(c) {
		t.Error("a private address is not refused")
	}
	w.wantBlocked("10.1.2.3", sandbox.BlockedPrivate)
	c = w.udp(netip.MustParseAddr("8.8.8.8"), 53)
	fmt.Fprint(c, "ping")
	if !unreachable(c) {
		t.Error("another DNS server is not refused")
	}
	w.wantBlocked("8.8.8.8", sandbox.BlockedResolver)
	select {
	case s := <-got:
		t.Errorf("the server got %.20q of what was blocked", s)
	default:
	}
}

func TestSetNetwork(t *testing.T) {
	w := newWorld(t, "web.example:7000,other.example:7000,10.1.0.0/16", sandbox.NetworkTerms{Reachable: "10.0.0.0/8"})
	w.serve(7000, echo, webAddr, otherAddr, privateAddr)
	w.mustLookup("web.example", "other.example")
	conns := map[string]net.Conn{}
	for name, a := range map[string]netip.Addr{"web.example": webAddr, "other.example": otherAddr, "10.1.2.3": privateAddr} {
		c := w.mustConnect(a, 7000)
		conns[name] = c
		fmt.Fprint(c, "\x00x")
		if _, err := io.ReadFull(c, make([]byte, 2)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.g.SetNetwork("web.example:7000"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"other.example", "10.1.2.3"} {
		if _, err := conns[name].Read(make([]byte, 1)); !ended(err) {
			t.Errorf("%s: %v, want the connection ended", name, err)
		}
		w.wantBlocked(name, sandbox.BlockedChange)
	}
	fmt.Fprint(conns["web.example"], "y")
	if _, err := io.ReadFull(conns["web.example"], make([]byte, 1)); err != nil {
		t.Errorf("what is still allowed: %v", err)
	}
	if _, err := w.connect(otherAddr, 7000); !refused(err) {
		t.Errorf("a new one to what is not: %v", err)
	}
	// The name remains, and its port does not: this protocol does not say the name.
	if err := w.g.SetNetwork("web.example"); err != nil {
		t.Fatal(err)
	}
	if _, err := conns["web.example"].Read(make([]byte, 1)); !ended(err) {
		t.Errorf("without its port: %v", err)
	}
	if err := w.g.SetNetwork("web.example:7000"); err != nil {
		t.Fatal(err)
	}
	conns["web.example"] = w.mustConnect(webAddr, 7000)
	if err := w.g.SetNetwork("none"); err != nil {
		t.Fatal(err)
	}
	if _, err := conns["web.example"].Read(make([]byte, 1)); !ended(err) {
		t.Errorf("with none: %v", err)
	}
	if err := w.g.SetNetwork("everything"); err == nil {
		t.Error("a policy that is none is taken")
	}
}

func TestRecord(t *testing.T) {
	w := newWorld(t, "web.example:7000", sandbox.NetworkTerms{})
	w.serve(7000, echo, webAddr)
	w.mustLookup("web.example")
	c := w.mustConnect(webAddr, 7000)
	fmt.Fprint(c, strings.Repeat("\x00", 1000))
	if _, err := io.ReadFull(c, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	// It counts while it is open: what is sent once it is, by which time its echo
	// may be here.
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if d := w.g.Traffic(0).Destinations; len(d) > 0 && d[0].Sent > 0 {
			break
		}
	}
	if d := w.g.Traffic(0).Destinations; len(d) != 1 || d[0].Sent != 1000 || d[0].Received != 1000 || d[0].Host != "web.example" || d[0].Port != 7000 {
		t.Errorf("while it is open: %+v", d)
	}
	c.Close()
	for deadline := time.Now().Add(10 * time.Second); len(w.g.Traffic(0).Connections) == 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	tr := w.g.Traffic(0)
	if len(tr.Connections) != 1 {
		t.Fatalf("%+v", tr)
	}
	got := tr.Connections[0]
	if got.Number != 1 || got.Host != "web.example" || got.Address != webAddr || got.Port != 7000 || got.Sent != 1000 || got.Received != 1000 ||
		got.Blocked != "" || got.Ended.Before(got.Started) || got.Protocol != sandbox.ProtocolTCP {
		t.Errorf("%+v", got)
	}
	if d := tr.Destinations; len(d) != 1 || d[0].Connections != 1 || d[0].Sent != 1000 {
		t.Errorf("%+v", d)
	}
	if rest := w.g.Traffic(1); len(rest.Connections) != 0 || rest.Missing != 0 {
		t.Errorf("after the first: %+v", rest)
	}
}
