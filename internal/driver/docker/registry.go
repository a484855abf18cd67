package docker

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/distribution/reference"

	"github.com/glovebox-dev/glovebox/internal/network"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// dockerHub is the registry of names without a registry. The engine knows its
// hosts.
const dockerHub = "docker.io"

// allowedFrom refuses an image of a registry that the operator does not allow. If
// the operator lists no registries, it refuses registries without a public address,
// unless anywhere is set.
func (d *Driver) allowedFrom(ctx context.Context, name string, anywhere bool) error {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return sandbox.Errorf(sandbox.Invalid, "image %q: %w", name, err)
	}
	host := reference.Domain(named)
	if len(d.opts.Registries) > 0 {
		if slices.ContainsFunc(d.opts.Registries, func(r string) bool { return strings.TrimPrefix(r, "index.") == host }) {
			return nil
		}
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "image %s: this server fetches nothing from %s", name, host),
			"the operator allows registries by images.registries; allowed are %s", strings.Join(d.opts.Registries, ", "))
	}
	if anywhere || host == dockerHub {
		return nil
	}
	return d.checkPublic(ctx, host)
}

// checkPublic refuses a registry with an address that is not public. The engine
// resolves the name again when it connects. A name whose addresses change in
// between, and a redirect, are therefore left to the engine.
func (d *Driver) checkPublic(ctx context.Context, host string) error {
	hostname := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		hostname = h
	}
	hostname = strings.Trim(hostname, "[]")
	var addrs []netip.Addr
	if a, err := netip.ParseAddr(hostname); err == nil {
		addrs = []netip.Addr{a}
	} else if addrs, err = d.opts.Lookup(ctx, hostname); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "registry %s: %w", host, err)
	}
	for _, a := range addrs {
		if !network.Public(a) {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "registry %s is at %s, which is not a public address", host, a),
				"the operator allows registries by images.registries")
		}
	}
	return nil
}
