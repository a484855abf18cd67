package bundle

import (
	"net"
	"net/netip"
	"os"

	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/config"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/network"
)

// Link returns the request for a box's interface at the end of link, besides its
// loopback interface.
func Link(link *os.File) *boot.CreateLinksAndRoutesArgs {
	prefixed := func(p netip.Prefix) boot.IPWithPrefix {
		return boot.IPWithPrefix{Address: p.Addr().AsSlice(), PrefixLen: p.Bits()}
	}
	onLink := func(p netip.Prefix) boot.Route {
		p = p.Masked()
		return boot.Route{Destination: net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
	}
	elsewhere := func(gateway netip.Addr) boot.DefaultRoute {
		bits := gateway.BitLen()
		return boot.DefaultRoute{Name: message.LinkName, Route: boot.Route{
			Destination: net.IPNet{IP: make(net.IP, bits/8), Mask: net.CIDRMask(0, bits)},
			Gateway:     gateway.AsSlice(),
		}}
	}
	neighbour := func(gateway netip.Addr) boot.Neighbor {
		return boot.Neighbor{IP: gateway.AsSlice(), HardwareAddr: network.GatewayMAC}
	}
	gateway4, gateway6 := network.Gateway4.Addr(), network.Gateway6.Addr()
	return &boot.CreateLinksAndRoutesArgs{
		FilePayload:   urpc.FilePayload{Files: []*os.File{link}},
		LoopbackLinks: []boot.LoopbackLink{boot.DefaultLoopbackLink},
		FDBasedLinks: []boot.FDBasedLink{{
			Name:              message.LinkName,
			MTU:               network.MTU,
			Addresses:         []boot.IPWithPrefix{prefixed(network.Guest4), prefixed(network.Guest6)},
			Routes:            []boot.Route{onLink(network.Guest4), onLink(network.Guest6)},
			TXChecksumOffload: true,
			RXChecksumOffload: true,
			LinkAddress:       network.GuestMAC,
			Neighbors:         []boot.Neighbor{neighbour(gateway4), neighbour(gateway6)},
			NumChannels:       1,
			// Without a queue, gVisor's blocking send of a datagram to a full link never ends:
			// it has taken the payload, and sends empty datagrams instead.
			QDisc: config.QDiscFIFO,
		}},
		Defaultv4Gateway: elsewhere(gateway4),
		Defaultv6Gateway: elsewhere(gateway6),
	}
}

// resolvers returns the DNS servers of a box with a network.
func resolvers() string {
	return network.Gateway4.Addr().String() + "," + network.Gateway6.Addr().String()
}
