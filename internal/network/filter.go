package network

import (
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/nested"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A filter passes only TCP and UDP packets from the sandbox's own addresses, and
// neighbour discovery. The gateway decides about these. The stack behind the
// filter would answer all other packets by itself.
type filter struct {
	nested.Endpoint
	log *log
}

var (
	_ stack.LinkEndpoint      = (*filter)(nil)
	_ stack.NetworkDispatcher = (*filter)(nil)
)

func newFilter(link stack.LinkEndpoint, l *log) *filter {
	f := &filter{log: l}
	f.Init(link, f)
	return f
}

// DeliverNetworkPacket implements [stack.NetworkDispatcher].
func (f *filter) DeliverNetworkPacket(proto tcpip.NetworkProtocolNumber, pkt *stack.PacketBuffer) {
	if f.passes(proto, pkt) {
		f.Endpoint.DeliverNetworkPacket(proto, pkt)
	}
}

func (f *filter) passes(proto tcpip.NetworkProtocolNumber, pkt *stack.PacketBuffer) bool {
	switch proto {
	case header.ARPProtocolNumber:
		return true
	case header.IPv4ProtocolNumber:
		b, ok := pkt.Data().PullUp(header.IPv4MinimumSize)
		return ok && f.passes4(header.IPv4(b))
	case header.IPv6ProtocolNumber:
		b, ok := pkt.Data().PullUp(header.IPv6MinimumSize)
		if !ok {
			return false
		}
		h := header.IPv6(b)
		if h.TransportProtocol() == header.ICMPv6ProtocolNumber {
			b, ok := pkt.Data().PullUp(header.IPv6MinimumSize + 1)
			return ok && f.neighbour(header.IPv6(b), header.ICMPv6Type(b[header.IPv6MinimumSize]))
		}
		return f.passes6(h)
	}
	return false
}

func (f *filter) passes4(h header.IPv4) bool {
	// IP options can contain source routes.
	if h.HeaderLength() != header.IPv4MinimumSize || h.SourceAddress() != tcpip.AddrFromSlice(Guest4.Addr().AsSlice()) {
		return false
	}
	switch h.TransportProtocol() {
	case header.TCPProtocolNumber, header.UDPProtocolNumber:
		return true
	}
	f.refused(h.DestinationAddress())
	return false
}

func (f *filter) passes6(h header.IPv6) bool {
	if h.SourceAddress() != tcpip.AddrFromSlice(Guest6.Addr().AsSlice()) {
		return false
	}
	switch h.NextHeader() {
	case uint8(header.TCPProtocolNumber), uint8(header.UDPProtocolNumber), uint8(header.IPv6FragmentExtHdrIdentifier):
		return true
	}
	f.refused(h.DestinationAddress())
	return false
}

// neighbour passes only the packets that discover the gateway's hardware address.
func (f *filter) neighbour(h header.IPv6, kind header.ICMPv6Type) bool {
	switch kind {
	case header.ICMPv6NeighborSolicit, header.ICMPv6NeighborAdvert:
		return true
	case header.ICMPv6RouterSolicit, header.ICMPv6MulticastListenerReport, header.ICMPv6MulticastListenerV2Report, header.ICMPv6MulticastListenerDone:
		return false // every system sends these by default
	}
	f.refused(h.DestinationAddress())
	return false
}

func (f *filter) refused(to tcpip.Address) {
	a, _ := netip.AddrFromSlice(to.AsSlice())
	f.log.block(sandbox.Connection{Protocol: sandbox.ProtocolOther, Address: a, Blocked: sandbox.BlockedProtocol})
}
