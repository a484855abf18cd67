package network

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
)

// onLink returns the networks to which the machine has routes without a gateway.
// An address from DHCPv6 has a prefix of 128 bits, and only a route names its
// network.
func onLink() ([]netip.Prefix, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var lines []int
	for _, i := range interfaces {
		if i.Flags&net.FlagPointToPoint != 0 {
			lines = append(lines, i.Index)
		}
	}
	table, err := syscall.NetlinkRIB(syscall.RTM_GETROUTE, syscall.AF_UNSPEC)
	if err != nil {
		return nil, fmt.Errorf("read routes: %w", err)
	}
	return linkRoutes(table, lines)
}

// Offsets and types of a route in the host kernel's answer.
const (
	routeHeader = 12
	routeBits   = 1
	routeType   = 7
	routeVia    = 18 // RTA_VIA: a gateway of the other family
)

// A lineRoute is a route into a link. A point-to-point link, such as a tunnel,
// may carry the whole internet without a gateway.
type lineRoute struct {
	to   netip.Prefix
	line int
}

// linkRoutes returns the networks in a routing table that are directly on a link.
// lines are the indexes of the point-to-point links.
func linkRoutes(table []byte, lines []int) ([]netip.Prefix, error) {
	messages, err := syscall.ParseNetlinkMessage(table)
	if err != nil {
		return nil, fmt.Errorf("read routes: %w", err)
	}
	var routes, wide []lineRoute
	for _, m := range messages {
		if m.Header.Type != syscall.RTM_NEWROUTE || len(m.Data) < routeHeader || m.Data[routeType] != syscall.RTN_UNICAST {
			continue
		}
		r, direct, err := directRoute(&m)
		if err != nil {
			return nil, err
		}
		switch {
		case !direct:
		case r.to.Bits() >= minNear(r.to.Addr()):
			routes = append(routes, r)
		case slices.Contains(lines, r.line):
			wide = append(wide, r)
		}
	}
	var near []netip.Prefix
	for _, r := range routes {
		if !pieceOfWorld(r, wide) {
			near = append(near, r.to)
		}
	}
	return near, nil
}

// directRoute returns the destination of a route, and whether the route leads to
// a link without a gateway.
func directRoute(m *syscall.NetlinkMessage) (r lineRoute, direct bool, err error) {
	attributes, err := syscall.ParseNetlinkRouteAttr(m)
	if err != nil {
		return r, false, fmt.Errorf("read routes: %w", err)
	}
	to := netip.IPv6Unspecified() // a default route has no destination
	if m.Data[0] == syscall.AF_INET {
		to = netip.IPv4Unspecified()
	}
	for _, a := range attributes {
		switch a.Attr.Type {
		case syscall.RTA_DST:
			to, _ = netip.AddrFromSlice(a.Value)
		case syscall.RTA_OIF:
			if direct = len(a.Value) == 4; direct {
				r.line = int(binary.NativeEndian.Uint32(a.Value))
			}
		case syscall.RTA_GATEWAY, routeVia:
			return r, false, nil
		}
	}
	r.to = netip.PrefixFrom(to, int(m.Data[routeBits]))
	return r, direct && r.to.IsValid(), nil
}

// pieceOfWorld reports whether r covers a part of the internet. A tunnel for all
// but some networks has wide and narrow routes to the rest, which do not overlap.
// A narrow route inside a wide route leads to a network of its own.
func pieceOfWorld(r lineRoute, wide []lineRoute) bool {
	piece := false
	for _, w := range wide {
		if w.line != r.line || w.to.Addr().Is4() != r.to.Addr().Is4() {
			continue
		}
		if w.to.Contains(r.to.Addr()) {
			return false
		}
		piece = true
	}
	return piece
}
