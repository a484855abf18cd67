package network

import "net/netip"

// Public reports whether an address may be reached for any principal that names
// it, by the rules for sandboxes to which no range is allowed: it is public, and
// neither one of this machine nor in a network that the machine is in. Where the
// machine's interfaces cannot be read, no address is public.
func Public(a netip.Addr) bool {
	m, err := thisMachine()
	return err == nil && m.public(a.Unmap())
}
