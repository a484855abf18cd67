package network

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestUnspecified decides about the addresses that the host's kernel takes for
// loopback, with rules for all addresses.
func TestUnspecified(t *testing.T) {
	p := newPolicy("0.0.0.0/0:9001,[::/0]:9001", "0.0.0.0/0:9001,[::/0]:9001")
	for to, want := range map[string]sandbox.BlockReason{
		"0.0.0.0:9001": sandbox.BlockedHost, "[::]:9001": sandbox.BlockedHost, "127.0.0.1:9001": sandbox.BlockedHost, "10.0.0.1:9001": "",
	} {
		if d := p.decide(netip.MustParseAddrPort(to), nil, &machine{known: true}); d.blocked != want {
			t.Errorf("%s: blocked %q, want %q", to, d.blocked, want)
		}
	}
}

func TestDecide(t *testing.T) {
	const reachable = "10.0.0.0/8,host.glovebox.internal:5432,1.1.1.1,192.0.2.2:9001,10.0.0.1:9001,104.16.0.128/25"
	m := &machine{known: true}
	m.add(netip.MustParseAddr("10.0.0.1"), 8)
	m.add(netip.MustParseAddr("93.184.216.1"), 32)
	m.add(netip.MustParseAddr("104.16.0.1"), 24)
	m.add(netip.MustParseAddr("2606:4700:10::1"), 64)
	for _, c := range []struct {
		network sandbox.Network
		to      string
		names   string
		blocked sandbox.BlockReason
		checked string
	}{
		{"none", "93.184.216.34:80", "a.example", sandbox.BlockedPolicy, ""},
		{"a.example", "93.184.216.34:80", "", sandbox.BlockedPolicy, ""},
		{"a.example", "93.184.216.34:80", "a.example", "", "a.example"},
		{"a.example:443", "93.184.216.34:80", "a.example", sandbox.BlockedPolicy, ""},
		{"a.example:443,b.example:80", "93.184.216.34:80", "a.example b.example", "", "b.example"},
		{"*.example.com", "93.184.216.34:80", "x.example.com y.example.com", "", "x.example.com y.example.com"},
		// An address that is not public is reached by a rule of this sandbox that
		// names it and the port, within those of the operator.
		{"a.example", "10.1.1.1:80", "a.example", sandbox.BlockedPrivate, ""},
		{"a.example:80", "10.1.1.1:80", "a.example", sandbox.BlockedPrivate, ""},
		{"*.example,internet", "10.1.1.1:80", "a.example", sandbox.BlockedPrivate, ""},
		{"a.example,10.1.0.0/16", "10.1.1.1:80", "a.example", "", ""},
		{"a.example,10.1.0.0/16:80", "10.1.1.1:80", "a.example", "", ""},
		{"a.example,10.1.0.0/16:80", "10.1.1.1:22", "a.example", sandbox.BlockedPolicy, ""},
		{"a.example:22,10.1.0.0/16:80", "10.1.1.1:22", "a.example", sandbox.BlockedPolicy, ""},
		{"internet,10.1.0.0/16:80", "10.1.1.1:22", "", sandbox.BlockedPolicy, ""},
		{"internet,10.1.0.0/16:80", "10.2.1.1:80", "", sandbox.BlockedPrivate, ""},
		{"a.example,10.1.0.0/16", "10.1.1.1:53", "a.example", sandbox.BlockedResolver, ""},
		{"a.example:53,10.1.0.0/16:80", "10.1.1.1:53", "a.example", sandbox.BlockedResolver, ""},
		{"internet", "192.0.2.2:9001", "", sandbox.BlockedPrivate, ""},
		{"internet", "192.0.2.2:9333", "", sandbox.BlockedPrivate, ""},
		{"internet,192.0.2.2:9001", "192.0.2.2:9001", "", "", ""},
		{"internet,192.0.2.2:9001", "192.0.2.2:9333", "", sandbox.BlockedPolicy, ""},
		{"internet,192.0.2.2", "192.0.2.2:9333", "", sandbox.BlockedPolicy, ""}, // the operator's rule has a port
		{"192.168.1.1:80", "192.168.1.1:80", "", sandbox.BlockedPrivate, ""},    // the operator has none
		{"a.example", "10.0.0.1:80", "a.example", sandbox.BlockedHost, ""},
		{"10.0.0.0/8", "10.0.0.1:80", "", sandbox.BlockedHost, ""},
		{"10.0.0.0/8", "10.0.0.1:9001", "", sandbox.BlockedHost, ""}, // each names this machine alone
		{"10.0.0.1", "10.0.0.1:9001", "", "", ""},
		{"10.0.0.1", "10.0.0.1:80", "", sandbox.BlockedPolicy, ""},
		// So are neighbours with public addresses.
		{"internet", "104.16.0.9:80", "", sandbox.BlockedPrivate, ""},
		{"a.example", "104.16.0.9:80", "a.example", sandbox.BlockedPrivate, ""},
		{"104.16.0.0/16", "104.16.0.9:80", "", sandbox.BlockedPrivate, ""},
		{"104.16.0.0/16", "104.16.0.129:80", "", "", ""},
		{"104.16.0.0/16", "104.16.1.9:80", "", "", ""},
		{"internet", "[2606:4700:10::2]:80", "", sandbox.BlockedPrivate, ""},
		{"internet", "[2606:4700:10:1::2]:80", "", "", ""},
		{"internet", "93.184.216.2:80", "", "", ""}, // an address of all bits has no neighbours
		{"internet", "127.0.0.1:80", "", sandbox.BlockedHost, ""},
		// This machine's loopback is reached by its name and a port of the operator.
		{"host.glovebox.internal:5432", "198.18.0.5:5432", "", "", ""},
		{"host.glovebox.internal:5432", "127.0.0.1:5432", "", sandbox.BlockedHost, ""},
		{"host.glovebox.internal:5432", "198.18.0.5:5433", "", sandbox.BlockedHost, ""},
		{"host.glovebox.internal:5433", "198.18.0.5:5433", "", sandbox.BlockedHost, ""},
		{"internet,*.internal,*.glovebox.internal,198.18.0.5", "198.18.0.5:5432", "", sandbox.BlockedHost, ""},
		{"a.example", "192.168.1.1:80", "a.example", sandbox.BlockedPrivate, ""},
		{"internet", "192.168.1.1:80", "", sandbox.BlockedPrivate, ""},
		{"internet", "10.1.1.1:80", "", sandbox.BlockedPrivate, ""}, // though the operator named the range
		{"internet", "93.184.216.1:80", "", sandbox.BlockedHost, ""},
		{"internet", "[::1]:80", "", sandbox.BlockedHost, ""},
		{"internet", "224.0.0.251:5353", "", sandbox.BlockedPrivate, ""},
		{"internet", "255.255.255.255:67", "", sandbox.BlockedPrivate, ""},
		{"internet", "[ff02::fb]:5353", "", sandbox.BlockedPrivate, ""},
		{"internet:443", "93.184.216.34:80", "", sandbox.BlockedPolicy, ""},
		{"internet", "93.184.216.34:53", "", sandbox.BlockedResolver, ""},
		{"internet:53", "93.184.216.34:53", "", sandbox.BlockedResolver, ""},
		{"internet,93.184.216.34", "93.184.216.34:53", "", sandbox.BlockedResolver, ""},
		{"internet,93.184.216.34:53", "93.184.216.34:53", "", "", ""},
		{"internet", "1.1.1.1:443", "one.one.one.one", sandbox.BlockedResolver, ""},
		{"internet,1.1.1.1", "1.1.1.1:443", "", "", ""},
		{"internet,dns.google", "8.8.8.8:443", "dns.google", "", "dns.google"},
		{"internet", "5.5.5.5:443", "dns.google", sandbox.BlockedResolver, ""},
		{"a.example", "93.184.216.34:853", "a.example", sandbox.BlockedResolver, ""},
		{"a.example,93.184.216.0/24", "93.184.216.34:80", "a.example", "", ""}, // by address: nothing to agree with
		// A denied range is not reached by names and "internet", but by a range.
		{"internet,!93.184.216.34", "93.184.216.34:80", "", sandbox.BlockedPolicy, ""},
		{"internet,!93.184.216.34", "93.184.216.35:80", "", "", ""},
		{"internet,!93.184.0.0/16", "93.184.216.34:80", "a.example", sandbox.BlockedPolicy, ""},
		{"a.example,!93.184.0.0/16", "93.184.216.34:80", "a.example", sandbox.BlockedPolicy, ""},
		{"a.example,!93.184.0.0/16", "93.185.216.34:80", "a.example", "", "a.example"},
		{"internet,93.184.216.34,!93.184.0.0/16", "93.184.216.34:80", "", "", ""},
		{"internet,93.184.216.34,!93.184.0.0/16", "93.184.216.35:80", "", sandbox.BlockedPolicy, ""},
		{"internet,93.184.0.0/16,!93.184.216.34", "93.184.216.34:80", "", "", ""},
		{"internet,93.184.216.34:443,!93.184.0.0/16", "93.184.216.34:80", "a.example", sandbox.BlockedPolicy, ""},
		{"internet,93.184.216.34:443,!93.184.0.0/16", "93.184.216.34:443", "a.example", "", ""},
		{"internet,!2606:4700:10:1::/64", "[2606:4700:10:1::2]:80", "", sandbox.BlockedPolicy, ""},
		{"internet,!0.0.0.0/0", "[2606:4700:10:1::2]:80", "", "", ""},
		{"internet,10.1.0.0/16,!10.0.0.0/8", "10.1.1.1:80", "", "", ""},
		{"internet,!10.0.0.0/8", "10.1.1.1:80", "", sandbox.BlockedPrivate, ""},
	} {
		var names []string
		if c.names != "" {
			names = strings.Fields(c.names)
		}
		d := newPolicy(c.network, reachable).decide(netip.MustParseAddrPort(c.to), names, m)
		if d.blocked != c.blocked || !slices.Equal(d.names, strings.Fields(c.checked)) {
			t.Errorf("%s with %s (%s): blocked %q, names %q; want %q, %q", c.to, c.network, c.names, d.blocked, d.names, c.blocked, c.checked)
		}
	}
}

// TestDecideOpaque says for which ports protocols pass that do not say their host.
func TestDecideOpaque(t *testing.T) {
	m := &machine{known: true}
	for _, c := range []struct {
		network sandbox.Network
		port    string
		want    bool
	}{
		{"a.example", "22", false},
		{"a.example:22", "22", true},
		{"a.example,a.example:22", "22", true},
		{"a.example:443", "443", false},
		{"a.example:80", "80", false},
		{"a.example:8080", "8080", false},
		{"a.example:5432", "5432", true},
		{"b.example:22,a.example", "22", false}, // another host's
		{"internet:22,a.example", "22", false},  // by address: not looked at
	} {
		d := newPolicy(c.network, "").decide(netip.MustParseAddrPort("93.184.216.34:"+c.port), []string{"a.example"}, m)
		if d.blocked != "" || d.opaque != c.want {
			t.Errorf("%s, port %s: blocked %q, opaque %v", c.network, c.port, d.blocked, d.opaque)
		}
	}
}

func TestMachine(t *testing.T) {
	m := &machine{known: true}
	for _, p := range []string{"5.6.7.8/0", "93.184.216.34/32", "2606:4700::1/0", "2a00::1/128", "172.17.0.1/16"} {
		n := netip.MustParsePrefix(p)
		m.add(n.Addr(), n.Bits())
	}
	// What claims the whole world has the part around its address.
	want := []netip.Prefix{netip.MustParsePrefix("5.0.0.0/8"), netip.MustParsePrefix("2606::/16"), netip.MustParsePrefix("172.17.0.0/16")}
	if !slices.Equal(m.near, want) {
		t.Errorf("near is %v, want %v", m.near, want)
	}
	for a, public := range map[string]bool{
		"5.6.7.8": false, "5.9.9.9": false, "6.6.6.6": true, "93.184.216.34": false, "93.184.216.35": true,
		"2a00::1": false, "2a00::2": true, "2606:1::1": false, "2001:4860::1": true, "10.0.0.1": false,
	} {
		if got := m.public(netip.MustParseAddr(a)); got != public {
			t.Errorf("public(%s) = %v", a, got)
		}
	}
	// Where the interfaces cannot be read, nothing is public.
	if d := newPolicy("internet", "").decide(netip.MustParseAddrPort("6.6.6.6:80"), nil, &machine{}); d.blocked != sandbox.BlockedHost {
		t.Errorf("without knowing the interfaces: %+v", d)
	}
	here, err := thisMachine()
	if err != nil || !here.known || !slices.Contains(here.own, netip.MustParseAddr("127.0.0.1")) {
		t.Errorf("this machine: %+v, %v", here, err)
	}
}

func TestClassify(t *testing.T) {
	for text, want := range map[string]kind{
		"": unclear, "\x16": unclear, "\x16\x03": isTLS, "\x16\x02": opaque, "\x15\x03\x01": isTLS, "\x14\x03": isTLS, "\x00": opaque,
		// Hellos in the form of SSL 2, and what only looks a little like it.
		"\x80\x2e\x01\x03": hiding, "\x80\x2e\x01\x00\x02": hiding, "\x80\x2e\x01": unclear, "\x80": unclear,
		"\x80\x01\x00\x04": opaque, "\xff\xfd\x03": opaque, "\xff\xfb\x01\xff": opaque,
		"G": unclear, "GET": unclear, "GET ": unclear, "GET /": isHTTP, "GET * HTTP/1.1": isHTTP, "GET x": unclear,
		"GET x HTTP/1.1\r\n": isHTTP, "get x http/1.1\n": isHTTP, "GET x\r\n": opaque, "GET HTTP://x": isHTTP,
		// What servers forgive.
		"\r\n": unclear, "\r\n\r\nGET /": isHTTP, " GET /": isHTTP, "\t\v\f GET x HTTP/1.0\n": isHTTP,
		"GET\v/": isHTTP, "GET\f/": isHTTP, "GET\x1c/": isHTTP, "GET\xa0/": isHTTP, "GET\xa0x\xa0HTTP/1.1\n": isHTTP,
		"GET \x01\x02/": isHTTP, "<GET> x HTTP/1.1\r\n": isHTTP, "GET\x85x": unclear,
		strings.Repeat("A", 33): unclear, strings.Repeat("A", 33) + " /": isHTTP, strings.Repeat("A", 5000) + " x HTTP/1.1": isHTTP,
		"A " + strings.Repeat("x", 9000): isHTTP, strings.Repeat("\n", 9000): isHTTP,
		"PRI * HTTP/2.0\r\n": isHTTP,
		// Preambles of proxies.
		"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\nGET / HTTP/1.1\r\n": hiding, "proxy UNKNOWN\r\n": hiding,
		"\r\n\r\n\x00\r\nQUIT\n\x21\x11": hiding, "\r\n\x00": hiding, "\r\nEHLO a\r\n": hiding,
		// Other protocols, whose clients speak first or second.
		"SSH-2.0-x\r\n": opaque, "EHLO a.example\r\n": opaque, "PING\r\n": opaque, "*1\r\n$4\r\nPING\r\n": opaque,
		"\x00\x00\x00\x08\x04\xd2\x16\x2f": opaque, "AMQP\x00\x00\x09\x01": opaque, "G\x01\x00\x00": opaque, // PostgreSQL, RabbitMQ, MongoDB
		"\x10\x0c\x00\x04MQTT": opaque, "\x05\x01\x00": opaque,
	} {
		if got := classify([]byte(text)); got != want {
			t.Errorf("classify(%.40q) = %d, want %d", text, got, want)
		}
	}
}

func FuzzClassify(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\n"), 3)
	f.Add([]byte("\x16\x03\x01"), 1)
	f.Add([]byte("\x80\x2e\x01\x03\x01"), 3)
	f.Add([]byte("\r\n\r\n\x00\r\nQUIT\n"), 5)
	f.Add([]byte("GET\xa0x\x00 HTTP/1.1\n"), 7)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		whole := classify(b)
		if n < 0 || n > len(b) {
			return
		}
		// What is clear does not change with what comes after.
		if part := classify(b[:n]); part != unclear && part != whole {
			t.Errorf("%q is %d, and %q is %d", b[:n], part, b, whole)
		}
	})
}
