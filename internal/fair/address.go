package fair

import (
	"net"
	"net/netip"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// AddressOf names a remote address, with or without a port, as a principal is
// named: it stands for a client that has not shown who it is. A network of IPv6
// that one site has, of 64 bits, is one address.
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
