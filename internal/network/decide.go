package network

import (
	"net/netip"
	"slices"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A policy is the parsed form of a sandbox's network rules.
type policy struct {
	network  sandbox.Network
	rules    []sandbox.NetworkRule
	denied   []netip.Prefix        // to rules without a range
	operator []sandbox.NetworkRule // rules of the terms, for addresses that are not public
}

func newPolicy(n, reachable sandbox.Network) *policy {
	return &policy{network: n, rules: n.Rules(), denied: n.Denied(), operator: reachable.Rules()}
}

// denies reports whether only a rule with a range may reach a.
func (p *policy) denies(a netip.Addr) bool {
	return slices.ContainsFunc(p.denied, func(r netip.Prefix) bool { return r.Contains(a) })
}

// inRange reports whether a rule of the sandbox names a range with a.
func (p *policy) inRange(a netip.Addr) bool {
	return slices.ContainsFunc(p.rules, func(r sandbox.NetworkRule) bool { return r.Range.IsValid() && r.Range.Contains(a) })
}

// A decision says whether a connection is allowed, and how.
type decision struct {
	blocked sandbox.BlockReason
	host    string // for the record: a name of the address
	// names are the names for which the connection was allowed. If there are any,
	// the transferred bytes must agree with them.
	names []string
	// opaque is true if a rule names the port, so that protocols that do not name
	// their host may pass.
	opaque bool
}

// Ports of DNS, in the clear and encrypted.
const (
	portDNS        = 53
	portDNSOverTLS = 853
)

// resolvers are the names and addresses of well-known public DNS servers over
// HTTPS. The rule "internet" excludes them, because the gateway would not see the
// names that they resolve. The list is not complete.
var (
	resolverNames = []string{
		"dns.google", "dns.google.com", "dns64.dns.google", "cloudflare-dns.com", "one.one.one.one", "dns.quad9.net",
		"doh.opendns.com", "dns.adguard-dns.com", "dns.nextdns.io", "doh.cleanbrowsing.org", "dns.mullvad.net",
		"doh.dns.sb", "dns.alidns.com", "doh.pub", "dns0.eu", "freedns.controld.com",
	}
	resolverAddresses = addresses(
		"8.8.8.8", "8.8.4.4", "2001:4860:4860::8888", "2001:4860:4860::8844",
		"1.1.1.1", "1.0.0.1", "1.1.1.2", "1.0.0.2", "1.1.1.3", "1.0.0.3", "2606:4700:4700::1111", "2606:4700:4700::1001",
		"9.9.9.9", "149.112.112.112", "9.9.9.10", "9.9.9.11", "2620:fe::fe", "2620:fe::9",
		"208.67.222.222", "208.67.220.220", "94.140.14.14", "94.140.15.15", "223.5.5.5", "223.6.6.6",
	)
)

func addresses(texts ...string) []netip.Addr {
	list := make([]netip.Addr, len(texts))
	for i, t := range texts {
		list[i] = netip.MustParseAddr(t)
	}
	return list
}

func isResolverName(name string) bool {
	return slices.ContainsFunc(resolverNames, func(r string) bool {
		return name == r || len(name) > len(r) && name[len(name)-len(r)-1] == '.' && name[len(name)-len(r):] == r
	})
}

// allowsName returns the reason why the sandbox may not resolve name, or "" if it
// may.
func (p *policy) allowsName(name string) sandbox.BlockReason {
	open := false
	for _, r := range p.rules {
		if !r.AllowsName(name) {
			continue
		}
		if !r.Internet {
			return ""
		}
		open = true
	}
	switch {
	case !open:
		return sandbox.BlockedPolicy
	case isResolverName(name):
		return sandbox.BlockedResolver
	}
	return ""
}

// named reports whether a rule of the sandbox and a rule of the operator both
// name a range with a, on that port. Port 0 is any port. Only such rules reach an
// address that is not public.
func (p *policy) named(a netip.Addr, port uint16, m *machine) bool {
	single := m.owns(a)
	by := func(rules []sandbox.NetworkRule) bool {
		return slices.ContainsFunc(rules, func(r sandbox.NetworkRule) bool {
			return r.Range.IsValid() && r.Range.Contains(a) && (port == 0 || r.AllowsPort(port)) &&
				// A wide range does not include the machine's own addresses.
				(!single || r.Range.IsSingleIP() || r.Range.Addr().IsLoopback())
		})
	}
	return by(p.rules) && by(p.operator)
}

// allowsThisMachine reports whether a rule of the sandbox and a rule of the
// operator both allow [sandbox.ThisMachine] on that port. Port 0 is any port.
func (p *policy) allowsThisMachine(port uint16) bool {
	by := func(rules []sandbox.NetworkRule) bool {
		return slices.ContainsFunc(rules, func(r sandbox.NetworkRule) bool {
			return r.IsThisMachine() && (port == 0 || r.AllowsPort(port))
		})
	}
	return by(p.rules) && by(p.operator)
}

// allowsAddress returns the reason why an address may not be reached on any port,
// or "" if it may be reached on some port.
func (p *policy) allowsAddress(a netip.Addr, m *machine) sandbox.BlockReason {
	switch {
	case a.IsUnspecified(): // the host's kernel takes it for loopback
		return sandbox.BlockedHost
	case m.public(a) && p.denies(a) && !p.inRange(a):
		return sandbox.BlockedPolicy
	case m.public(a) || p.named(a, 0, m):
		return ""
	case m.owns(a):
		return sandbox.BlockedHost
	}
	return sandbox.BlockedPrivate
}

// decide decides about a connection to dst, whose address has these names.
func (p *policy) decide(dst netip.AddrPort, names []string, m *machine) decision {
	a, port := dst.Addr(), dst.Port()
	d := decision{}
	if a == thisMachine4 {
		if d.host = sandbox.ThisMachine; !p.allowsThisMachine(port) {
			d.blocked = sandbox.BlockedHost
		}
		return d
	}
	if len(names) > 0 {
		d.host = names[len(names)-1]
	}
	if d.blocked = p.allowsAddress(a, m); d.blocked != "" {
		return d
	}
	// meant reports whether a rule may allow this port. The ports of DNS need a
	// rule that names them, so another DNS server must be allowed explicitly.
	meant := func(r sandbox.NetworkRule) bool {
		return r.Port == port || port != portDNS && port != portDNSOverTLS
	}
	byRange := slices.ContainsFunc(p.rules, func(r sandbox.NetworkRule) bool {
		return r.Range.IsValid() && r.Range.Contains(a) && r.AllowsPort(port) && meant(r)
	})
	if byRange && (m.public(a) || p.named(a, port, m)) {
		return d
	}
	if p.denies(a) {
		d.blocked = sandbox.BlockedPolicy
		return d
	}
	open := false
	for _, r := range p.rules {
		switch {
		case !r.AllowsPort(port) || r.Range.IsValid() || !m.public(a):
		case r.Internet:
			open = true
		case meant(r):
			for _, n := range names {
				if r.AllowsName(n) {
					d.opaque = d.opaque || r.Port == port && !sandbox.IsWebPort(port)
					if !slices.Contains(d.names, n) {
						d.names = append(d.names, n)
					}
				}
			}
		}
	}
	if open && port != portDNS && port != portDNSOverTLS && !slices.Contains(resolverAddresses, a) &&
		!slices.ContainsFunc(names, isResolverName) {
		d.names, d.opaque = nil, false
		return d
	}
	if len(d.names) > 0 {
		d.host = d.names[len(d.names)-1]
		return d
	}
	d.blocked = sandbox.BlockedPolicy
	if open || port == portDNS || port == portDNSOverTLS {
		d.blocked = sandbox.BlockedResolver
	}
	return d
}
