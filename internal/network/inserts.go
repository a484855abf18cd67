package network

import (
	"crypto/tls"
	"net/http"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// inserts are the values that a gateway puts into requests, with the authorities
// that answer for their hosts. They do not change; [Gateway.Change] replaces them.
type inserts struct {
	secrets []sandbox.Secret // header rules too
	// authorities are the first one and those for hosts of later header rules. An
	// authority cannot get hosts later, and programs that run know the old ones.
	authorities []*authority
}

// maxAuthorities bounds the authorities of one gateway.
const maxAuthorities = 16

func newInserts(secrets []sandbox.Secret) (*inserts, error) {
	in := &inserts{}
	return in.with(secrets)
}

// with returns inserts with other secrets, and with the same authorities. If they
// do not cover all hosts, it makes another one for the other hosts.
func (in *inserts) with(secrets []sandbox.Secret) (*inserts, error) {
	next := &inserts{secrets: secrets, authorities: slices.Clone(in.authorities)}
	uncovered := slices.DeleteFunc(slices.Clone(secrets), func(s sandbox.Secret) bool {
		return !slices.ContainsFunc(s.Hosts.Rules(), func(r sandbox.NetworkRule) bool { return in.authorityFor(r.Host) == nil })
	})
	if len(uncovered) == 0 {
		return next, nil
	}
	if len(in.authorities) == maxAuthorities {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "the header rules had other hosts %d times, the most for one sandbox", maxAuthorities),
			"use the hosts of earlier rules, or make a new sandbox")
	}
	a, err := newAuthority(uncovered)
	if err != nil {
		return nil, err
	}
	next.authorities = append(next.authorities, a)
	return next, nil
}

// authorityFor returns the authority that may sign for the host of that name, or
// nil.
func (in *inserts) authorityFor(name string) *authority {
	for _, a := range in.authorities {
		if a.covers(name) {
			return a
		}
	}
	return nil
}

func (in *inserts) certificate(name string) (*tls.Certificate, error) {
	if a := in.authorityFor(name); a != nil {
		return a.certificate(name)
	}
	return nil, sandbox.Errorf(sandbox.Internal, "no authority is for %s", name)
}

// pem returns the certificates of the authorities, or nil if there are none.
func (in *inserts) pem() []byte {
	var all []byte
	for _, a := range in.authorities {
		all = append(all, a.pem...)
	}
	return all
}

// secretsFor returns the secrets that may go to the host of that name on that
// port: those with placeholders, and the header rules.
func (in *inserts) secretsFor(name string, port uint16) (named, rules []sandbox.Secret) {
	for _, s := range in.secrets {
		switch {
		case !s.IsFor(name, port):
		case s.Always:
			rules = append(rules, s)
		default:
			named = append(named, s)
		}
	}
	return named, rules
}

// namesFor returns the names that secrets are for on that port. If there are any,
// the gateway must inspect the connection.
func (in *inserts) namesFor(names []string, port uint16) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool {
		return !slices.ContainsFunc(in.secrets, func(s sandbox.Secret) bool { return s.IsFor(n, port) })
	})
}

// clearNames returns the names with header rules that requests on that port
// without TLS would evade.
func (in *inserts) clearNames(names []string, port uint16) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool {
		return !slices.ContainsFunc(in.secrets, func(s sandbox.Secret) bool { return s.NeedsTLS(n, port) })
	})
}

// concern reports whether a connection to that port of a host with these names
// depends on the inserts.
func (in *inserts) concern(names []string, port uint16) bool {
	return len(in.namesFor(names, port)) > 0 || len(in.clearNames(names, port)) > 0
}

// lost reports whether the host of that name has a header rule whose value is
// lost.
func (in *inserts) lost(name string, port uint16) bool {
	_, rules := in.secretsFor(name, port)
	return slices.ContainsFunc(rules, func(s sandbox.Secret) bool { return s.IsLost() })
}

// Change puts another policy, in canonical form, and other header rules in force;
// nil keeps the rules. It ends the connections that the policy does not allow, and
// those to hosts whose rules may have changed. The error wraps [sandbox.Invalid] if
// the policy is not in canonical form, and [sandbox.Unsupported] if the gateway
// began without secrets and header rules: the sandbox then trusts no authority.
func (g *Gateway) Change(n sandbox.Network, rules []sandbox.Secret) error {
	g.changing.Lock()
	defer g.changing.Unlock()
	if rules == nil {
		return g.SetNetwork(n)
	}
	if err := n.CheckCanonical(); err != nil {
		return err
	}
	old := g.inserts.Load()
	if len(rules) > 0 && len(old.authorities) == 0 {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "rules: the sandbox was made without header rules, and trusts no authority that could set them"),
			"make a new sandbox with rules; they can then be replaced")
	}
	all := slices.DeleteFunc(slices.Clone(old.secrets), func(s sandbox.Secret) bool { return s.Always })
	next, err := old.with(append(all, rules...))
	if err != nil {
		return err
	}
	// The policy comes first: a new value must not follow an old policy.
	if err := g.SetNetwork(n); err != nil {
		return err
	}
	g.inserts.Store(next)
	for _, f := range g.log.flows() {
		names := f.names
		if len(names) == 0 {
			names = g.names.of(f.dst.Addr())
		}
		if f.in != next && (old.concern(names, f.dst.Port()) || next.concern(names, f.dst.Port())) {
			f.stop(sandbox.BlockedChange)
		}
	}
	return nil
}

// A ruled transport sets the headers of header rules. It comes after the removal
// of headers that Connection names, which would otherwise remove them.
type ruled struct {
	http.RoundTripper
	headers map[string]string
}

// newRuled returns a transport for rules. Their values may have placeholders of
// secrets that go into the same header of the same host.
func newRuled(t http.RoundTripper, rules, named []sandbox.Secret) *ruled {
	r := &ruled{t, map[string]string{}}
	for _, rule := range rules {
		name := rule.Headers[0]
		fit := slices.DeleteFunc(slices.Clone(named), func(s sandbox.Secret) bool { return !s.TakesHeader(name) })
		r.headers[name] = newReplacer(fit).strings.Replace(rule.Value.Reveal())
	}
	return r
}

// size returns the size of the headers, in bytes.
func (t *ruled) size() int64 {
	n := 0
	for name, value := range t.headers {
		n += len(name) + len(value)
	}
	return int64(n)
}

func (t *ruled) RoundTrip(req *http.Request) (*http.Response, error) {
	for sent := range req.Header {
		// Some servers take an underscore for a hyphen.
		if _, ruled := t.headers[http.CanonicalHeaderKey(strings.ReplaceAll(sent, "_", "-"))]; ruled {
			delete(req.Header, sent)
		}
	}
	for name, value := range t.headers {
		req.Header[name] = []string{value}
		delete(req.Trailer, name)
	}
	return t.RoundTripper.RoundTrip(req)
}

// refuseClear answers a request without TLS to a host with header rules.
func (f *flow) refuseClear(w http.ResponseWriter, name string) {
	f.named(name)
	w.Header().Set("Connection", "close")
	http.Error(w, "glovebox: the sandbox has header rules for "+name+", and sets them in HTTPS requests only. Use https://", http.StatusForbidden)
	_ = http.NewResponseController(w).Flush()
	f.stop(sandbox.BlockedClear)
}

// Authority returns the certificates, in PEM, that the sandbox must trust for its
// secrets and header rules to work, or nil if it has none.
func (g *Gateway) Authority() []byte { return g.inserts.Load().pem() }

// covers reports whether the authority may sign for the host of that name.
func (a *authority) covers(name string) bool {
	return slices.ContainsFunc(a.cert.PermittedDNSDomains, func(d string) bool { return name == d || strings.HasSuffix(name, "."+d) })
}
