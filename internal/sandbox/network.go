package sandbox

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// A Network says what a sandbox may reach: [NetworkNone], or rules with commas
// between. A rule is one of
//
//	internet         every public address, and every name
//	example.com      a host, by its name
//	*.example.com    every host below a domain, but not the domain itself
//	192.0.2.7        an address
//	2001:db8::/32    a range of addresses
//
// with a port behind a colon, or without one for any: internet:443,
// example.com:443, [2001:db8::/32]:22. A rule holds for TCP and UDP.
//
// Addresses that are not public (see [Public]), and those of the networks that
// the machine is in, are reached by rules that name their range and the port, and
// by no others: neither internet nor a name reaches them.
//
// A rule with a name and without a port is for TLS and HTTP, which say the name,
// on any port, and for UDP; another protocol over TCP needs the rule to name its
// port, which is none of the web's (see [IsWebPort]).
//
// [ParseNetwork] makes one in canonical form, as it has everywhere but in a
// request; the zero value is a request for the default.
type Network string

const (
	// NetworkNone is a sandbox with no interface beyond its own loopback. It
	// is the default.
	NetworkNone Network = "none"
	// NetworkInternet is one that reaches everything public.
	NetworkInternet Network = "internet"
)

// Bounds on a Network: what a person can still read.
const (
	maxNetworkRules = 256
	maxNetworkText  = 16 << 10
	maxHostName     = 253
)

// A NetworkRule is one rule of a Network. Exactly one of Internet, Host and a
// valid Range is set.
type NetworkRule struct {
	Internet bool
	// Host is a name in lower case without a dot at its end; Below says that
	// the rule is for the names below it.
	Host  string
	Below bool
	Range netip.Prefix
	Port  uint16 // zero is any
}

// String returns the rule as ParseNetwork reads it.
func (r NetworkRule) String() string {
	var s string
	switch {
	case r.Internet:
		s = string(NetworkInternet)
	case r.Below:
		s = "*." + r.Host
	case r.Host != "":
		s = r.Host
	case r.Range.IsSingleIP():
		s = r.Range.Addr().String()
	default:
		s = r.Range.String()
	}
	if r.Port == 0 {
		return s
	}
	if r.Range.IsValid() && r.Range.Addr().Is6() {
		s = "[" + s + "]"
	}
	return s + ":" + strconv.Itoa(int(r.Port))
}

// ParseNetwork reads the rules in items, each of which may hold several with
// commas between, or "none". No item at all gives "", the default. The error
// wraps [Invalid] and names the rule.
func ParseNetwork(items ...string) (Network, error) {
	var texts []string
	none := false
	for item := range strings.SplitSeq(strings.Join(items, ","), ",") {
		switch item = strings.TrimSpace(item); item {
		case "":
		case string(NetworkNone):
			none = true
		default:
			if len(texts) == maxNetworkRules {
				return "", Errorf(Invalid, "network: more than %d rules", maxNetworkRules)
			}
			rule, err := parseRule(item)
			if err != nil {
				return "", err
			}
			if s := rule.String(); !slices.Contains(texts, s) {
				texts = append(texts, s)
			}
		}
	}
	switch {
	case none && len(texts) > 0:
		return "", Errorf(Invalid, "network: %q goes with no other rule", NetworkNone)
	case none:
		return NetworkNone, nil
	}
	n := Network(strings.Join(texts, ","))
	if len(n) > maxNetworkText {
		return "", Errorf(Invalid, "network: the rules have more than %d characters", maxNetworkText)
	}
	return n, nil
}

// Rules returns the rules of a canonical n: none for NetworkNone.
func (n Network) Rules() []NetworkRule {
	if n == "" || n == NetworkNone {
		return nil
	}
	var rules []NetworkRule
	for text := range strings.SplitSeq(string(n), ",") {
		if r, err := parseRule(text); err == nil { // what does not parse allows nothing
			rules = append(rules, r)
		}
	}
	return rules
}

// Ranges returns the rules of n that name addresses, each with its port.
func (n Network) Ranges() Network {
	var texts []string
	for _, r := range n.Rules() {
		if r.Range.IsValid() {
			texts = append(texts, r.String())
		}
	}
	return Network(strings.Join(texts, ","))
}

// Within reports whether every rule of n, which is canonical, allows no more
// than some rule of most. The error wraps [Invalid] and names the first that
// allows more.
func (n Network) Within(most Network) error {
	limits := most.Rules()
	for _, r := range n.Rules() {
		if slices.ContainsFunc(limits, func(m NetworkRule) bool { return m.covers(r) }) {
			continue
		}
		err := Errorf(Invalid, "network: %s is not among what this server allows, which is %s", r, most.orNone())
		return WithHint(err, "ask for less, or ask the operator to start the server with --allow-network %s", r)
	}
	return nil
}

func (n Network) orNone() Network {
	if n == "" {
		return NetworkNone
	}
	return n
}

// covers reports whether m allows all that r does.
func (m NetworkRule) covers(r NetworkRule) bool {
	if m.Port != 0 && m.Port != r.Port {
		return false
	}
	switch {
	case m.Internet:
		// A name reaches what is public, whatever it stands for.
		return !r.Range.IsValid() || publicRange(r.Range)
	case m.Below:
		return r.Host != "" && (r.Host == m.Host && r.Below || below(r.Host, m.Host))
	case m.Host != "":
		return r.Host == m.Host && !r.Below
	}
	return r.Range.IsValid() && m.Range.Bits() <= r.Range.Bits() && m.Range.Contains(r.Range.Addr())
}

// AllowsName reports whether r allows the host of that name, which is in lower
// case and without a dot at its end, on some port.
func (r NetworkRule) AllowsName(name string) bool {
	if r.Below {
		return below(name, r.Host)
	}
	return r.Internet || r.Host != "" && r.Host == name
}

// AllowsPort reports whether r allows that port.
func (r NetworkRule) AllowsPort(port uint16) bool { return r.Port == 0 || r.Port == port }

// webPorts are those that servers of HTTP and of HTTPS usually have.
var webPorts = []uint16{80, 443, 8000, 8008, 8080, 8443, 8888}

// IsWebPort reports whether a rule that names a host and this port means TLS and
// HTTP, and no other protocol over TCP.
func IsWebPort(port uint16) bool { return slices.Contains(webPorts, port) }

func below(name, domain string) bool { return strings.HasSuffix(name, "."+domain) }

func parseRule(text string) (NetworkRule, error) {
	wrong := func(why, hint string) (NetworkRule, error) {
		return NetworkRule{}, WithHint(Errorf(Invalid, "network: %.80q %s", text, why), "%s", hint)
	}
	const forms = `the forms are none, internet, example.com, *.example.com, 192.0.2.7 and 192.0.2.0/24, each with :port or without`
	var r NetworkRule
	host, port, err := cutPort(text)
	if err != nil {
		return wrong(err.Error(), forms)
	}
	r.Port = port
	if host == string(NetworkInternet) {
		r.Internet = true
		return r, nil
	}
	if p, ok := parseRange(host); ok {
		if p != p.Masked() {
			return wrong("is a range that does not begin where it should", "the range is "+p.Masked().String())
		}
		r.Range = p
		return r, nil
	}
	name := strings.TrimSuffix(strings.ToLower(host), ".")
	name, r.Below = strings.CutPrefix(name, "*.")
	if !ValidHost(name) {
		return wrong("is neither a host name nor an address", forms)
	}
	r.Host = name
	return r, nil
}

// cutPort cuts ":port" from the end of a rule, and the brackets that an IPv6
// address needs then.
func cutPort(text string) (host string, port uint16, err error) {
	host = text
	inBrackets := strings.HasPrefix(text, "[")
	if !inBrackets && strings.Count(text, ":") > 1 {
		return host, 0, nil // an IPv6 address
	}
	at := strings.LastIndexByte(text, ':')
	if at > 0 && at > strings.LastIndexByte(text, ']') {
		n, err := strconv.ParseUint(text[at+1:], 10, 16)
		if err != nil || n == 0 {
			return "", 0, Errorf(Invalid, "has no port from 1 to 65535 behind its colon")
		}
		host, port = text[:at], uint16(n)
	}
	if inBrackets {
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	return host, port, nil
}

// parseRange reads an address or a range. IPv4 in the clothes of IPv6 becomes
// what it is.
func parseRange(text string) (netip.Prefix, bool) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, false
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return netip.Prefix{}, false
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p, true
}

// ValidHost reports whether name is a host name in lower case with at least
// two labels, of which the last is no number: what could be an address in any
// of the forms that programs read is none.
func ValidHost(name string) bool {
	if len(name) > maxHostName {
		return false
	}
	labels := strings.Split(name, ".")
	for _, l := range labels {
		if l == "" || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' ||
			strings.Trim(l, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	last := labels[len(labels)-1]
	return len(labels) > 1 && last[0] >= 'a' && last[0] <= 'z'
}

// UnmarshalJSON reads a text as ParseNetwork does, or an array of them.
func (n *Network) UnmarshalJSON(data []byte) error {
	var items []string
	if err := json.Unmarshal(data, &items); err != nil {
		var item string
		if err := json.Unmarshal(data, &item); err != nil {
			return Errorf(Invalid, "network: is neither a text nor a list of texts")
		}
		items = []string{item}
	}
	parsed, err := ParseNetwork(items...)
	if err != nil {
		return err
	}
	*n = parsed
	return nil
}

// NetworkTerms are on what terms a sandbox with a network has it: the
// operator's, and the same for every sandbox of a server.
type NetworkTerms struct {
	// Reachable is the most that a policy may reach of addresses that are not
	// public: the operator's rules that name them. Before rules had ports here
	// it was a list of ranges, which reads as rules for every port; the ports
	// are in the policy that was made within the operator's rules.
	Reachable Network `json:"reachable,omitempty"`
	// Resolver is the address and port of the DNS server to ask; empty is the
	// host's own way.
	Resolver string `json:"resolver,omitempty"`
	// BytesPerSecond bounds how fast a sandbox sends, and how fast it
	// receives; Bytes bounds both together over its life; Connections bounds
	// those open at one time. Zero takes a default for Connections, and is no
	// bound for the others.
	BytesPerSecond int64 `json:"bytes_per_second,omitempty"`
	Bytes          int64 `json:"bytes,omitempty"`
	Connections    int   `json:"connections,omitempty"`
}
