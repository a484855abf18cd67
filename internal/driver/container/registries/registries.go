// Package registries has the rules for the registries that a container platform
// fetches images from.
//
// Drivers for container platforms import it. Its values need no Close, and are safe
// for concurrent use.
package registries

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/network"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// dockerHub is the registry of names without a registry. Platforms know its hosts.
const dockerHub = "docker.io"

// Rules are the rules of one platform.
type Rules struct {
	// Allowed are the only registries to fetch images from, like docker.io, at any
	// address. If it is empty, all registries at public addresses are allowed.
	Allowed []string
	// Lookup resolves the names of registries.
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
}

// Check refuses an image of a registry that the operator does not allow. If the
// operator lists no registries, it refuses registries without a public address,
// unless anywhere is set.
func (r *Rules) Check(ctx context.Context, image, registry string, anywhere bool) error {
	if len(r.Allowed) > 0 {
		if slices.ContainsFunc(r.Allowed, func(a string) bool { return strings.TrimPrefix(a, "index.") == registry }) {
			return nil
		}
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "image %s: this server fetches nothing from %s", image, registry),
			"the operator allows registries by images.registries; allowed are %s", strings.Join(r.Allowed, ", "))
	}
	if anywhere || registry == dockerHub {
		return nil
	}
	return r.checkPublic(ctx, registry)
}

// checkPublic refuses a registry with an address that is not public. The platform
// resolves the name again when it connects. A name whose addresses change in
// between, and a redirect, are therefore left to the platform.
func (r *Rules) checkPublic(ctx context.Context, registry string) error {
	hostname := registry
	if h, _, err := net.SplitHostPort(registry); err == nil {
		hostname = h
	}
	hostname = strings.Trim(hostname, "[]")
	var addrs []netip.Addr
	if a, err := netip.ParseAddr(hostname); err == nil {
		addrs = []netip.Addr{a}
	} else if addrs, err = r.Lookup(ctx, hostname); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "registry %s: %w", registry, err)
	}
	for _, a := range addrs {
		if !network.Public(a) {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "registry %s is at %s, which is not a public address", registry, a),
				"the operator allows registries by images.registries")
		}
	}
	return nil
}
