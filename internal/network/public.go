package network

import (
	"net/netip"
	"slices"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Public reports whether an address may be reached for anybody who names it, by
// the rules for sandboxes to which no range is allowed: it is public, and not
// one of this machine.
func Public(a netip.Addr) bool {
	a = a.Unmap()
	return sandbox.Public(a) && !slices.Contains(hostAddresses()(), a)
}
