package network

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestDecide(t *testing.T) {
	reachable := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("1.1.1.1/32")}
	own := addresses("10.0.0.1", "93.184.216.1")
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
		{"a.example", "10.1.1.1:80", "a.example", "", "a.example"}, // the operator named the range
		{"a.example", "10.0.0.1:80", "a.example", sandbox.BlockedHost, ""},
		{"10.0.0.0/8", "10.0.0.1:80", "", sandbox.BlockedHost, ""},
		{"127.0.0.1", "127.0.0.1:80", "", "", ""},
		{"127.0.0.1", "127.0.0.2:80", "", sandbox.BlockedHost, ""},
		{"a.example", "192.168.1.1:80", "a.example", sandbox.BlockedPrivate, ""},
		{"internet", "192.168.1.1:80", "", sandbox.BlockedPrivate, ""},
		{"internet", "10.1.1.1:80", "", "", ""},
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
	} {
		var names []string
		if c.names != "" {
			names = strings.Fields(c.names)
		}
		d := newPolicy(c.network, reachable).decide(netip.MustParseAddrPort(c.to), names, own)
		if d.blocked != c.blocked || !slices.Equal(d.names, strings.Fields(c.checked)) {
			t.Errorf("%s with %s (%s): blocked %q, names %q; want %q, %q", c.to, c.network, c.names, d.blocked, d.names, c.blocked, c.checked)
		}
	}
}

func TestClassify(t *testing.T) {
	for text, want := range map[string]kind{
		"": unclear, "\x16": unclear, "\x16\x03": isTLS, "\x16\x02": opaque, "\x80\x2e\x01": opaque, "\x00": opaque,
		"G": unclear, "GET": unclear, "GET ": unclear, "GET /": isHTTP, "GET * HTTP/1.1": isHTTP, "GET x": unclear,
		"GET x HTTP/1.1\r\n": isHTTP, "get x http/1.1\n": isHTTP, "GET x\r\n": opaque, "\r\n": unclear, "\r\n\r\nGET /": isHTTP,
		"SSH-2.0-x\r\n": opaque, "EHLO a.example\r\n": opaque, "PING\r\n": opaque, "*1\r\n$4\r\nPING\r\n": opaque,
		"PRI * HTTP/2.0\r\n": isHTTP, strings.Repeat("A", 33): opaque, "A " + strings.Repeat("x", 9000): isHTTP,
	} {
		if got := classify([]byte(text)); got != want {
			t.Errorf("classify(%.40q) = %d, want %d", text, got, want)
		}
	}
}

func FuzzClassify(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\n"), 3)
	f.Add([]byte("\x16\x03\x01"), 1)
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
