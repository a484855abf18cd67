package fair

import (
	"net"
	"net/netip"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// AddressOf returns a remote address, with or without a port, in the form of a
// principal. It stands for a client that has not authenticated. All IPv6
// addresses of a 64-bit network count as one address, because one site has them
// all.
func AddressOf(remote string) sandbox.Principal {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is6() && !ip.Is4In6() {
		if site, err := ip.WithZone("").Prefix(64); err == nil {
			host = site.String()
		}
	}
	return sandbox.Principal("address " + host)
}
