package httpserver

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/auth"
)

// forwardedFor is the header in which each proxy appends the address of its client. RFC
// 7239's header Forwarded is not read: a proxy that writes one of the two headers passes
// the other on as its client wrote it.
const forwardedFor = "X-Forwarded-For"

// A proxyList has the addresses of the operator's own proxies.
type proxyList []netip.Prefix

// fromClient returns a request with the address of its client in RemoteAddr and in the
// context. If a proxy of the list sent the request, that is the last address of
// X-Forwarded-For that is no proxy's: proxies of the list appended it and all after it,
// and only the client wrote what is before. A forwarded address has no port. If the header
// is malformed up to there, or names proxies only, the address is the proxy's.
func (l proxyList) fromClient(r *http.Request) *http.Request {
	address, forwarded := r.RemoteAddr, false
	if peer, err := parseAddress(r.RemoteAddr); err == nil && l.has(peer) {
		if chain := r.Header.Values(forwardedFor); len(chain) > 0 {
			forwarded = true
			if client, ok := l.client(strings.Join(chain, ",")); ok {
				address = client.String()
			}
		}
	}
	r = r.WithContext(auth.WithRemote(r.Context(), address, forwarded))
	r.RemoteAddr = address
	return r
}

// client returns the last address of a chain that is no proxy's.
func (l proxyList) client(chain string) (netip.Addr, bool) {
	for found := true; found; {
		var last string
		before := strings.LastIndexByte(chain, ',')
		chain, last, found = chain[:max(before, 0)], chain[before+1:], before >= 0
		a, err := parseAddress(strings.TrimSpace(last))
		if err != nil {
			return a, false
		}
		if !l.has(a) {
			return a, true
		}
	}
	return netip.Addr{}, false
}

func (l proxyList) has(a netip.Addr) bool {
	return slices.ContainsFunc(l, func(p netip.Prefix) bool { return p.Contains(a) })
}

// parseAddress parses an IP address, with or without a port or the brackets of IPv6.
func parseAddress(text string) (netip.Addr, error) {
	if with, err := netip.ParseAddrPort(text); err == nil {
		return with.Addr().Unmap().WithZone(""), nil
	}
	if inner, ok := strings.CutPrefix(text, "["); ok && strings.HasSuffix(inner, "]") {
		text = strings.TrimSuffix(inner, "]")
	}
	a, err := netip.ParseAddr(text)
	return a.Unmap().WithZone(""), err
}
