package network

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"syscall"
	"testing"
)

// route returns a route as the kernel tells it: to a network, of a kind, by an
// interface, through a gateway if that is set.
func route(to string, kind byte, index uint32, gateway string) []byte {
	p := netip.MustParsePrefix(to)
	family := byte(syscall.AF_INET6)
	if p.Addr().Is4() {
		family = syscall.AF_INET
	}
	body := make([]byte, routeHeader)
	body[0], body[routeBits], body[routeType] = family, byte(p.Bits()), kind
	attribute := func(name uint16, value []byte) {
		body = binary.NativeEndian.AppendUint16(body, uint16(syscall.SizeofRtAttr+len(value)))
		body = binary.NativeEndian.AppendUint16(body, name)
		body = append(body, value...)
	}
	if p.Bits() > 0 {
		attribute(syscall.RTA_DST, p.Addr().AsSlice())
	}
	attribute(syscall.RTA_OIF, binary.NativeEndian.AppendUint32(nil, index))
	if gateway != "" {
		attribute(syscall.RTA_GATEWAY, netip.MustParseAddr(gateway).AsSlice())
	}
	head := binary.NativeEndian.AppendUint32(nil, uint32(syscall.NLMSG_HDRLEN+len(body)))
	head = binary.NativeEndian.AppendUint16(head, syscall.RTM_NEWROUTE)
	return append(append(head, make([]byte, 10)...), body...)
}

func TestLinkRoutes(t *testing.T) {
	const tunnel, rest, exit = 7, 8, 9
	var table []byte
	for _, r := range [][]byte{
		route("2600:1f18:1::/64", syscall.RTN_UNICAST, 2, ""),       // of an address that DHCPv6 gave
		route("93.184.216.0/24", syscall.RTN_UNICAST, 2, ""),        //
		route("93.184.217.0/24", syscall.RTN_UNICAST, 2, "5.6.7.8"), // not on the link
		route("2600:2::/64", syscall.RTN_UNICAST, 2, "fe80::1"),
		route("0.0.0.0/0", syscall.RTN_UNICAST, 2, ""),
		route("128.0.0.0/1", syscall.RTN_UNICAST, 2, ""),
		route("2000::/3", syscall.RTN_UNICAST, 2, ""),
		route("104.16.0.0/13", syscall.RTN_UNICAST, tunnel, ""), // a company's network
		route("2600:3::/32", syscall.RTN_UNICAST, tunnel, ""),
		route("104.32.0.0/13", syscall.RTN_UNICAST, tunnel, "5.6.7.8"),
		// The world but for private networks, in pieces.
		route("0.0.0.0/5", syscall.RTN_UNICAST, rest, ""),
		route("11.0.0.0/8", syscall.RTN_UNICAST, rest, ""),
		route("172.64.0.0/10", syscall.RTN_UNICAST, rest, ""),
		route("192.0.0.0/9", syscall.RTN_UNICAST, rest, ""),
		route("2600:4::/32", syscall.RTN_UNICAST, rest, ""), // which says nothing of IPv6
		// The world, and a network.
		route("0.0.0.0/0", syscall.RTN_UNICAST, exit, ""),
		route("185.0.0.0/16", syscall.RTN_UNICAST, exit, ""),
		route("::/0", syscall.RTN_UNICAST, exit, ""),
		route("2600:5::/32", syscall.RTN_UNICAST, exit, ""),
		route("5.6.7.255/32", syscall.RTN_BROADCAST, 2, ""),
		route("5.6.7.8/32", syscall.RTN_LOCAL, 1, ""),
		route("5.6.7.1/32", syscall.RTN_UNICAST, 2, ""), // the gateway itself
	} {
		table = append(table, r...)
	}
	got, err := linkRoutes(table, []int{tunnel, rest, exit})
	var want []netip.Prefix
	for _, p := range []string{
		"2600:1f18:1::/64", "93.184.216.0/24", "104.16.0.0/13", "2600:3::/32", "2600:4::/32", "185.0.0.0/16", "2600:5::/32", "5.6.7.1/32",
	} {
		want = append(want, netip.MustParsePrefix(p))
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if _, err := onLink(); err != nil {
		t.Errorf("of this machine: %v", err)
	}
}
