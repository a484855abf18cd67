package network

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
)

// onLink returns the networks that the machine has routes to without a gateway.
// An address that DHCPv6 gave has 128 bits, and only a route says which network
// it is in.
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

// Parts of a route in the kernel's answer.
const (
	routeHeader = 12
	routeBits   = 1
	routeType   = 7
	routeVia    = 18 // RTA_VIA: a gateway of the other family
)

// A lineRoute is a route into a point-to-point link, such as a tunnel. Such a link
// may carry the whole world, and has no gateway for that either.
type lineRoute struct {
	to   netip.Prefix
	line int
}

// linkRoutes returns the networks in a routing table that are on a link. lines are
// the links that are point-to-point.
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

// directRoute returns where a route goes, and whether that is a link and no gateway.
func directRoute(m *syscall.NetlinkMessage) (r lineRoute, direct bool, err error) {
	attributes, err := syscall.ParseNetlinkRouteAttr(m)
	if err != nil {
		return r, false, fmt.Errorf("read routes: %w", err)
	}
	to := netip.IPv6Unspecified() // a default route says no destination
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

// pieceOfWorld reports whether r is a piece of the internet. A tunnel for all but
// some networks has routes to the rest in pieces, wide and narrow, and no piece is
// within another. A narrow route within a wide one is to a network of its own.
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
