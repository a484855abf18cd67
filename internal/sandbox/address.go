package sandbox

import (
	"net/netip"
	"strings"
)

// notPublic lists the IPv4 ranges outside the public internet: IANA's
// special-purpose registries, multicast, and ranges that hold metadata services
// of clouds.
var notPublic = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),        // this network
	netip.MustParsePrefix("10.0.0.0/8"),       // private
	netip.MustParsePrefix("100.64.0.0/10"),    // shared with a carrier; metadata of some clouds
	netip.MustParsePrefix("127.0.0.0/8"),      // loopback
	netip.MustParsePrefix("168.63.129.16/32"), // a cloud's own services
	netip.MustParsePrefix("169.254.0.0/16"),   // link-local, and metadata services
	netip.MustParsePrefix("172.16.0.0/12"),    // private
	netip.MustParsePrefix("192.0.0.0/24"),     // protocol assignments; metadata of some clouds
	netip.MustParsePrefix("192.0.2.0/24"),     // documentation
	netip.MustParsePrefix("192.31.196.0/24"),  // AS112
	netip.MustParsePrefix("192.52.193.0/24"),  // AMT
	netip.MustParsePrefix("192.88.99.0/24"),   // 6to4 relays
	netip.MustParsePrefix("192.168.0.0/16"),   // private
	netip.MustParsePrefix("192.175.48.0/24"),  // AS112
	netip.MustParsePrefix("198.18.0.0/15"),    // benchmarks
	netip.MustParsePrefix("198.51.100.0/24"),  // documentation
	netip.MustParsePrefix("203.0.113.0/24"),   // documentation
	netip.MustParsePrefix("224.0.0.0/4"),      // multicast
	netip.MustParsePrefix("240.0.0.0/4"),      // reserved, and broadcast
}

// public6 is the IPv6 space that IANA allocates, and notPublic6 lists its
// non-public ranges. Every IPv6 range that embeds IPv4 addresses counts as
// non-public. Programs do not need these ranges, and a translator on the path
// could deliver them to a private IPv4 address.
var (
	public6    = netip.MustParsePrefix("2000::/3")
	notPublic6 = []netip.Prefix{
		netip.MustParsePrefix("2001::/23"),     // protocol assignments, Teredo, ORCHID, benchmarks
		netip.MustParsePrefix("2001:db8::/32"), // documentation
		netip.MustParsePrefix("2002::/16"),     // 6to4
		netip.MustParsePrefix("2620:4f:8000::/48"),
		netip.MustParsePrefix("3fff::/20"), // documentation
	}
)

// IsLoopback reports whether a host, without a port, always means this machine:
// localhost, or a loopback address. Names below localhost do not count, because
// they may serve previews of sandboxes.
func IsLoopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && a.Unmap().IsLoopback()
}

// Public reports whether a is an address of the public internet. An address is
// not public if it is private, loopback, link-local, multicast, reserved, a known
// metadata service, or IPv4 embedded in IPv6. An IPv4-mapped address counts as
// the IPv4 address.
func Public(a netip.Addr) bool {
	a = a.Unmap()
	if !a.IsValid() || a.Zone() != "" {
		return false
	}
	return publicRange(netip.PrefixFrom(a, a.BitLen()))
}

// publicRange reports whether every address of p is public.
func publicRange(p netip.Prefix) bool {
	special := notPublic
	if p.Addr().Is6() {
		if p.Bits() < public6.Bits() || !public6.Contains(p.Addr()) {
			return false
		}
		special = notPublic6
	}
	for _, s := range special {
		if s.Overlaps(p) {
			return false
		}
	}
	return true
}
