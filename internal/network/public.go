package network

import "net/netip"

// Public reports whether every principal may reach an address that it names,
// under the rules for sandboxes without allowed ranges. The address must be
// public, and neither the machine's own nor in one of its networks. If the
// machine's interfaces cannot be read, no address is public.
func Public(a netip.Addr) bool {
	m, err := thisMachine()
	return err == nil && m.public(a.Unmap())
}
