package network

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseHostNames(t *testing.T) {
	got := hostNames{
		Resolv: "# made by hand\nnameserver 192.0.2.1 ; first\nnameserver nonsense\nnameserver fe80::1%eth0\nnameserver 2001:db8::1\nnameserver 192.0.2.9\nsearch example.com\noptions timeout:2 use-vc\n",
		Hosts:  "127.0.0.1 localhost\n::1 LocalHost. ip6 # loopback\nnonsense there\n\n",
	}.parse()
	want := &namesConfig{
		servers: []string{"192.0.2.1:53", "[fe80::1%eth0]:53", "[2001:db8::1]:53"},
		timeout: 2 * time.Second,
		tcp:     true,
		hosts: map[string][]netip.Addr{
			"localhost": {netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")},
			"ip6":       {netip.MustParseAddr("::1")},
		},
	}
	same := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(namesConfig{}), same); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := (hostNames{}).parse(); !cmp.Equal(got.servers, defaultDNSServers) || got.timeout != defaultDNSTimeout {
		t.Errorf("without texts: servers %q, timeout %v", got.servers, got.timeout)
	}
}

// TestHostNamesFirst has a name of /etc/hosts resolved without a server, also
// after the text has changed.
func TestHostNamesFirst(t *testing.T) {
	r := newHostResolver("192.0.2.1:53")
	for _, addr := range []string{"192.0.2.7", "192.0.2.8"} {
		r.use(hostNames{Hosts: addr + " db.example\n"})
		got, err := r.lookup(t.Context(), "ip", "DB.example.")
		if err != nil || len(got) != 1 || got[0] != netip.MustParseAddr(addr) {
			t.Errorf("lookup = %v, %v; want %s", got, err, addr)
		}
	}
}
