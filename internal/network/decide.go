package network

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A policy is what a sandbox may reach, ready to be asked.
type policy struct {
	network   sandbox.Network
	rules     []sandbox.NetworkRule
	reachable []netip.Prefix
}

func newPolicy(n sandbox.Network, reachable []netip.Prefix) *policy {
	return &policy{network: n, rules: n.Rules(), reachable: reachable}
}

// A decision says whether a connection is allowed, and how.
type decision struct {
	blocked sandbox.BlockReason
	host    string // for the record: a name that the address goes by
	// names are those that the connection was allowed for. If there are any,
	// what is sent must agree with them.
	names []string
}

// Ports of DNS, in the clear and encrypted.
const (
	portDNS        = 53
	portDNSOverTLS = 853
)

// resolvers are names and addresses of public DNS servers that speak over
// HTTPS. A policy of everything public does not include them, or names would be
// resolved that nobody sees. There are others: the list is for the usual ones.
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

// allowsName reports why name may not be asked for, or "" if it may.
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

// allowsAddress reports why an address may not be reached whatever the rules
// say, or "" if it may. own are the addresses of this machine.
func (p *policy) allowsAddress(a netip.Addr, own []netip.Addr) sandbox.BlockReason {
	named := func(f func(netip.Prefix) bool) bool { return slices.ContainsFunc(p.reachable, f) }
	if a.IsLoopback() || slices.Contains(own, a) {
		// A wide range is not meant to include the machine that it is
		// configured on.
		if !named(func(r netip.Prefix) bool { return r.Contains(a) && (r.IsSingleIP() || r.Addr().IsLoopback()) }) {
			return sandbox.BlockedHost
		}
		return ""
	}
	if !sandbox.Public(a) && !named(func(r netip.Prefix) bool { return r.Contains(a) }) {
		return sandbox.BlockedPrivate
	}
	return ""
}

// decide decides for a connection to an address that goes by names.
func (p *policy) decide(dst netip.AddrPort, names []string, own []netip.Addr) decision {
	a, port := dst.Addr(), dst.Port()
	d := decision{}
	if len(names) > 0 {
		d.host = names[len(names)-1]
	}
	if d.blocked = p.allowsAddress(a, own); d.blocked != "" {
		return d
	}
	// Whether a rule means this port and nothing else: the way to allow another
	// DNS server.
	meant := func(r sandbox.NetworkRule) bool {
		return r.Port == port || port != portDNS && port != portDNSOverTLS
	}
	for _, r := range p.rules {
		if r.Range.IsValid() && r.Range.Contains(a) && r.AllowsPort(port) && meant(r) {
			return d
		}
	}
	open := false
	for _, r := range p.rules {
		switch {
		case !r.AllowsPort(port) || r.Range.IsValid():
		case r.Internet:
			open = true
		case meant(r):
			for _, n := range names {
				if r.AllowsName(n) && !slices.Contains(d.names, n) {
					d.names = append(d.names, n)
				}
			}
		}
	}
	if open && port != portDNS && port != portDNSOverTLS && !slices.Contains(resolverAddresses, a) &&
		!slices.ContainsFunc(names, isResolverName) {
		d.names = nil
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

// hostAddresses returns a function that tells this machine's own addresses,
// which are looked at again from time to time.
func hostAddresses() func() []netip.Addr {
	var (
		mu   sync.Mutex
		at   time.Time
		list []netip.Addr
	)
	return func() []netip.Addr {
		mu.Lock()
		defer mu.Unlock()
		if !at.IsZero() && time.Since(at) < hostAddressesFor {
			return list
		}
		all, err := net.InterfaceAddrs()
		if err != nil {
			return list
		}
		list, at = nil, time.Now()
		for _, a := range all {
			if n, ok := a.(*net.IPNet); ok {
				if ip, ok := netip.AddrFromSlice(n.IP); ok {
					list = append(list, ip.Unmap())
				}
			}
		}
		return list
	}
}

// hostAddressesFor is how long the machine's addresses are taken for the same.
const hostAddressesFor = 10 * time.Second
