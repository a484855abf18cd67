package image

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A guardedTransport sends unencrypted requests only to this machine. It refuses
// redirects from a remote registry to this machine. It connects to non-public
// addresses only for hosts that the operator named. It has its own connections,
// so a connection for the operator is never reused for another caller.
type guardedTransport struct {
	local bool // the registry is on this machine
	named func(host string) bool
	check func(netip.Addr) error

	proxy   func(*http.Request) (*url.URL, error)
	lookup  func(ctx context.Context, name string) ([]netip.Addr, error)
	free    *http.Transport // to hosts that the operator named
	public  *http.Transport // to public addresses only, for all other hosts
	proxied *http.Transport // to the proxy of the server's environment
}

// dialTimeout is the time limit to connect to an address.
const dialTimeout = 30 * time.Second

// guarded returns the transport to a registry. With itself, the registry may have
// any address. With all, redirects may lead to any address, too.
func (s *Store) guarded(registry string, itself, all bool) *guardedTransport {
	g := &guardedTransport{local: isLoopback(registry), proxy: s.opts.Proxy, lookup: s.opts.Lookup}
	g.named = func(host string) bool { return all || itself && host == registry || s.listed(host) }
	g.check = func(a netip.Addr) error {
		if s.opts.Public(a.Unmap()) {
			return nil
		}
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "%s is not a public address", a),
			"check the name, or list the registry's host in images.registries")
	}
	transport := func(control func(string, string, syscall.RawConn) error) *http.Transport {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.Proxy = nil
		t.DialContext = (&net.Dialer{Timeout: dialTimeout, Control: control}).DialContext
		return t
	}
	g.free = transport(nil)
	// The check runs after name resolution, so the name cannot resolve to another
	// address later.
	g.public = transport(func(_, address string, _ syscall.RawConn) error {
		a, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		return g.check(a.Addr())
	})
	g.proxied = transport(nil)
	g.proxied.Proxy = g.proxy
	return g
}

func (g *guardedTransport) close() {
	for _, t := range []*http.Transport{g.free, g.public, g.proxied} {
		t.CloseIdleConnections()
	}
}

func (g *guardedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	local := isLoopback(r.URL.Host)
	switch {
	case local && !g.local:
		return nil, sandbox.Errorf(sandbox.Unavailable, "the registry redirects to %s, which is on this machine", r.URL.Host)
	case r.URL.Scheme != "https" && !local:
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "%s does not use HTTPS, which only a registry on this machine may omit", r.URL.Host),
			"use a tunnel or a proxy on this machine")
	}
	proxy, err := g.proxy(r)
	if err != nil {
		return nil, err
	}
	named := g.named(r.URL.Host)
	switch {
	case proxy != nil:
		if !named {
			if err := g.checkName(r.Context(), r.URL.Hostname()); err != nil {
				return nil, err
			}
		}
		return g.proxied.RoundTrip(r)
	case named:
		return g.free.RoundTrip(r)
	}
	return g.public.RoundTrip(r)
}

// checkName checks the addresses of a name to which a proxy will connect. The
// proxy resolves the name again, so this check is not complete.
func (g *guardedTransport) checkName(ctx context.Context, host string) error {
	if a, err := netip.ParseAddr(host); err == nil {
		return g.check(a)
	}
	addrs, err := g.lookup(ctx, host)
	if err != nil {
		return err
	}
	for _, a := range addrs {
		if err := g.check(a); err != nil {
			return err
		}
	}
	return nil
}

func (g *guardedTransport) redirect(_ *http.Request, via []*http.Request) error {
	const most = 10
	if len(via) >= most {
		return errors.New("too many redirects")
	}
	return nil
}
