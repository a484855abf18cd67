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
	// A tunnel has routes without a gateway to whatever goes through it.
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

// linkRoutes returns the networks in a routing table that are on a link, and on
// none of lines.
func linkRoutes(table []byte, lines []int) ([]netip.Prefix, error) {
	messages, err := syscall.ParseNetlinkMessage(table)
	if err != nil {
		return nil, fmt.Errorf("read routes: %w", err)
	}
	var near []netip.Prefix
	for _, m := range messages {
		if m.Header.Type != syscall.RTM_NEWROUTE || len(m.Data) < routeHeader || m.Data[routeType] != syscall.RTN_UNICAST {
			continue
		}
		attributes, err := syscall.ParseNetlinkRouteAttr(&m)
		if err != nil {
			return nil, fmt.Errorf("read routes: %w", err)
		}
		var to netip.Addr
		direct := false
		for _, a := range attributes {
			switch a.Attr.Type {
			case syscall.RTA_DST:
				to, _ = netip.AddrFromSlice(a.Value)
			case syscall.RTA_OIF:
				direct = len(a.Value) == 4 && !slices.Contains(lines, int(binary.NativeEndian.Uint32(a.Value)))
			}
		}
		gateway := slices.ContainsFunc(attributes, func(a syscall.NetlinkRouteAttr) bool {
			return a.Attr.Type == syscall.RTA_GATEWAY || a.Attr.Type == routeVia
		})
		if bits := int(m.Data[routeBits]); to.IsValid() && direct && !gateway && bits >= minNear(to) && bits <= to.BitLen() {
			near = append(near, netip.PrefixFrom(to, bits))
		}
	}
	return near, nil
}
