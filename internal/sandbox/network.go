package sandbox

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// A Network says what a sandbox may reach. It is [NetworkNone], or rules
// separated by commas. A rule is one of
//
//	internet         every public address, and every name
//	example.com      a host, by its name
//	*.example.com    every host below a domain, but not the domain itself
//	192.0.2.7        an address
//	2001:db8::/32    a range of addresses
//
// optionally followed by a colon and a port: internet:443, example.com:443,
// [2001:db8::/32]:22. A rule without a port is for every port. A rule holds for
// TCP and UDP.
//
// A Network may also deny addresses on every port: !192.0.2.7 or !2001:db8::/32.
// "internet" and names do not reach them then. A rule with an address range does:
// it wins over each denied range, whichever is the smaller.
//
// The host [ThisMachine] stands for the loopback address of the machine that runs
// the server, and its rule needs a port. No other rule covers it. An address of
// loopback itself is an error, because programs would reach the sandbox's own.
//
// Only a rule with an address range and a port reaches addresses that are not
// public (see [Public]), or addresses of the machine's own networks. Neither
// "internet" nor a name reaches them.
//
// A rule with a name and no port allows TLS and HTTP on any port, because these
// protocols send the name. It also allows UDP. Another protocol over TCP needs a
// rule with its port, and the port must not be a web port (see [IsWebPort]).
//
// [ParseNetwork] returns a Network in canonical form. Every Network except in a
// request is canonical. The zero value in a request means the default.
type Network string

const (
	// NetworkNone gives a sandbox no interface except its own loopback. It is the
	// default.
	NetworkNone Network = "none"
	// NetworkInternet lets a sandbox reach every public address.
	NetworkInternet Network = "internet"
)

// ThisMachine is the host name by which sandboxes reach programs on the loopback
// address of the machine that runs the server.
const ThisMachine = "host.glovebox.internal"

// Bounds on a Network. A person must still be able to read it.
const (
	maxNetworkRules = 256 // with denied ranges
	maxNetworkText  = 16 << 10
	maxHostName     = 253
)

// A NetworkRule is one rule of a Network. Exactly one of Internet, Host and a
// valid Range is set.
type NetworkRule struct {
	Internet bool
	// Host is a name in lower case without a trailing dot. If Below is true, the
	// rule is for the names below Host.
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

// ParseNetwork parses the rules in items. Each item holds rules separated by
// commas, or "none". Without items it returns "", the default. The error wraps
// [Invalid] and names the rule.
func ParseNetwork(items ...string) (Network, error) { return parseNetwork(parseRule, items) }

// parseNetwork parses items, each rule by parse.
func parseNetwork(parse func(string) (NetworkRule, error), items []string) (Network, error) {
	var texts, denied []string
	none := false
	for item := range strings.SplitSeq(strings.Join(items, ","), ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		if item == string(NetworkNone) {
			none = true
			continue
		}
		if len(texts)+len(denied) == maxNetworkRules {
			return "", Errorf(Invalid, "network: more than %d rules", maxNetworkRules)
		}
		to := &texts
		var s string
		if text, ok := strings.CutPrefix(item, denySign); ok {
			r, err := parseDenied(text)
			if err != nil {
				return "", err
			}
			to, s = &denied, deniedText(r)
		} else {
			rule, err := parse(item)
			if err != nil {
				return "", err
			}
			s = rule.String()
		}
		if !slices.Contains(*to, s) {
			*to = append(*to, s)
		}
	}
	switch {
	case none && len(texts)+len(denied) > 0:
		return "", Errorf(Invalid, "network: %q cannot be combined with other rules", NetworkNone)
	case none:
		return NetworkNone, nil
	case len(texts) == 0 && len(denied) > 0:
		return "", WithHint(Errorf(Invalid, "network: %s denies a range, and no rule allows anything", denied[0]),
			"write also what is allowed, like internet,%s", denied[0])
	}
	n := networkOf(texts, denied)
	if len(n) > maxNetworkText {
		return "", Errorf(Invalid, "network: the rules have more than %d characters", maxNetworkText)
	}
	return n, nil
}

// CheckCanonical returns an error if n is not in the form that [ParseNetwork]
// returns. The zero value is not. The error wraps [Invalid].
func (n Network) CheckCanonical() error {
	parsed, err := ParseNetwork(string(n))
	if err != nil {
		return err
	}
	if parsed != n || n == "" {
		return WithHint(Errorf(Invalid, "network: %.80q is not in canonical form", string(n)), "parse it first")
	}
	return nil
}

// Rules returns the rules of n that allow something. n is canonical. NetworkNone
// has none. See also [Network.Denied].
func (n Network) Rules() []NetworkRule {
	if n == "" || n == NetworkNone {
		return nil
	}
	var rules []NetworkRule
	for text := range strings.SplitSeq(string(n), ",") {
		if r, err := parseRule(text); err == nil { // a rule that does not parse, or that denies, allows nothing
			rules = append(rules, r)
		}
	}
	return rules
}

// Ranges returns the rules of n that name addresses or [ThisMachine], each with
// its port.
func (n Network) Ranges() Network {
	var texts []string
	for _, r := range n.Rules() {
		if r.Range.IsValid() || r.IsThisMachine() {
			texts = append(texts, r.String())
		}
	}
	return Network(strings.Join(texts, ","))
}

// Within returns an error unless some rule of most covers each rule of n, which
// is canonical. The error wraps [Invalid] and names the first rule that is not
// covered.
func (n Network) Within(most Network) error {
	limits := most.Rules()
	for _, r := range n.Rules() {
		if slices.ContainsFunc(limits, func(m NetworkRule) bool { return m.covers(r) }) {
			continue
		}
		err := Errorf(Invalid, "network: %s is not allowed; this server allows %s", r, most.orNone())
		return WithHint(err, "ask for less, or ask the operator to start the server with --allow-network %s", r)
	}
	return nil
}

// WiderThan reports whether n may allow a destination that other does not. Both are
// canonical. It compares rule by rule, so it also returns true where only several
// rules of other together cover a rule of n.
func (n Network) WiderThan(other Network) bool {
	if n.Within(other) != nil {
		return true
	}
	denied := n.Denied()
	return len(n.Rules()) > 0 && slices.ContainsFunc(other.Denied(), func(o netip.Prefix) bool {
		return !slices.ContainsFunc(denied, func(d netip.Prefix) bool { return d.Bits() <= o.Bits() && d.Contains(o.Addr()) })
	})
}

// Common returns the rules of n that most covers, and those of most that n covers.
// Both are canonical; so is the result, which is [NetworkNone] if there is no such
// rule. The result denies the same addresses as n.
func (n Network) Common(most Network) Network {
	var texts []string
	add := func(from, limits []NetworkRule) {
		for _, r := range from {
			if s := r.String(); !slices.Contains(texts, s) && slices.ContainsFunc(limits, func(m NetworkRule) bool { return m.covers(r) }) {
				texts = append(texts, s)
			}
		}
	}
	add(n.Rules(), most.Rules())
	add(most.Rules(), n.Rules())
	if len(texts) == 0 {
		return NetworkNone
	}
	return networkOf(texts, n.deniedTexts())
}

func (n Network) orNone() Network {
	if n == "" {
		return NetworkNone
	}
	return n
}

// covers reports whether m allows everything that r allows.
func (m NetworkRule) covers(r NetworkRule) bool {
	if m.Port != 0 && m.Port != r.Port {
		return false
	}
	switch {
	case r.IsThisMachine() || m.IsThisMachine():
		return r.IsThisMachine() && m.IsThisMachine()
	case m.Internet:
		// A name reaches only public addresses, whatever it resolves to.
		return !r.Range.IsValid() || publicRange(r.Range)
	case m.Below:
		return r.Host != "" && (r.Host == m.Host && r.Below || below(r.Host, m.Host))
	case m.Host != "":
		return r.Host == m.Host && !r.Below
	}
	return r.Range.IsValid() && m.Range.Bits() <= r.Range.Bits() && m.Range.Contains(r.Range.Addr())
}

// AllowsName reports whether r allows the host of that name on some port. The
// name is in lower case, without a trailing dot.
func (r NetworkRule) AllowsName(name string) bool {
	if name == ThisMachine {
		return r.IsThisMachine()
	}
	if r.Below {
		return below(name, r.Host)
	}
	return r.Internet || r.Host != "" && r.Host == name
}

// IsThisMachine reports whether r is a rule for [ThisMachine].
func (r NetworkRule) IsThisMachine() bool { return r.Host == ThisMachine && !r.Below }

// AllowsPort reports whether r allows the port.
func (r NetworkRule) AllowsPort(port uint16) bool { return r.Port == 0 || r.Port == port }

// webPorts are the usual ports of HTTP and HTTPS servers.
var webPorts = []uint16{80, 443, 8000, 8008, 8080, 8443, 8888}

// IsWebPort reports whether a rule with a host name and this port allows only TLS
// and HTTP over TCP, and no other protocol.
func IsWebPort(port uint16) bool { return slices.Contains(webPorts, port) }

func below(name, domain string) bool { return strings.HasSuffix(name, "."+domain) }

const toThisMachine = "to reach a program on this machine, use " + ThisMachine + " with the port of the program, like " + ThisMachine + ":5432"

func parseRule(text string) (NetworkRule, error) {
	r, err := parseForm(text)
	if err != nil {
		return r, err
	}
	wrong := func(why, hint string) (NetworkRule, error) {
		return NetworkRule{}, WithHint(Errorf(Invalid, "network: %.80q %s", text, why), "%s", hint)
	}
	switch {
	case r.Range.IsValid() && (r.Range.Addr().IsLoopback() || r.Range.IsSingleIP() && r.Range.Addr().IsUnspecified()) ||
		below("."+r.Host, "localhost"):
		return wrong("is the sandbox itself", toThisMachine)
	case r.IsThisMachine() && r.Port == 0:
		return wrong("needs a port", "write it like "+ThisMachine+":5432")
	}
	return r, nil
}

// parseForm parses the form of a rule. Earlier versions accepted every rule of that
// form, and so their stored policies have them.
func parseForm(text string) (NetworkRule, error) {
	wrong := func(why, hint string) (NetworkRule, error) {
		return NetworkRule{}, WithHint(Errorf(Invalid, "network: %.80q %s", text, why), "%s", hint)
	}
	const forms = `use none, internet, example.com, *.example.com, 192.0.2.7 or 192.0.2.0/24, each with or without :port`
	var r NetworkRule
	if _, rest, ok := strings.Cut(text, "://"); ok {
		name, _, _ := strings.Cut(rest, "/")
		return wrong("is a URL", "name its host: "+name)
	}
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
			return wrong("does not begin at the first address of its range", "write it as "+p.Masked().String())
		}
		r.Range = p
		return r, nil
	}
	name := strings.TrimSuffix(strings.ToLower(host), ".")
	name, r.Below = strings.CutPrefix(name, "*.")
	if name == "localhost" {
		return wrong("is the sandbox itself", toThisMachine)
	}
	if !ValidHost(name) {
		return wrong("is not a host name, an address or an address range", forms)
	}
	r.Host = name
	return r, nil
}

// cutPort cuts ":port" from the end of a rule. It also removes the brackets that
// an IPv6 address with a port needs.
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
			return "", 0, Errorf(Invalid, "must have a port from 1 to 65535 after the colon")
		}
		host, port = text[:at], uint16(n)
	}
	if inBrackets {
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	return host, port, nil
}

// parseRange parses an address or a range. It converts IPv4-mapped IPv6 to IPv4.
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

// ValidHost reports whether name is a host name: lower case, at least two labels,
// and a letter at the start of the last label. The last rule excludes every form
// of an IP address that programs accept.
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

// UnmarshalJSON parses a string as ParseNetwork does, or an array of strings. It
// keeps rules that only earlier versions accepted, because records of boxes have
// them: they allow nothing. [ParseNetwork] refuses them in a request.
func (n *Network) UnmarshalJSON(data []byte) error {
	var items []string
	if err := json.Unmarshal(data, &items); err != nil {
		var item string
		if err := json.Unmarshal(data, &item); err != nil {
			return Errorf(Invalid, "network: must be a string or a list of strings")
		}
		items = []string{item}
	}
	parsed, err := parseNetwork(parseForm, items)
	if err != nil {
		return err
	}
	*n = parsed
	return nil
}

// InForce returns the rules of n that allow something: without those that only
// earlier versions accepted.
func (n Network) InForce() Network {
	if n == "" {
		return n
	}
	var texts []string
	for _, r := range n.Rules() {
		texts = append(texts, r.String())
	}
	if len(texts) == 0 {
		return NetworkNone
	}
	return networkOf(texts, n.deniedTexts())
}

// NetworkTerms are the operator's terms for sandboxes with a network. They are
// the same for every sandbox of a server.
type NetworkTerms struct {
	// Reachable bounds the non-public addresses that a policy may reach: the
	// operator's rules that name them. Older values are lists of ranges without
	// ports, which parse as rules for every port. The policy itself holds the
	// ports then, because it was checked against the operator's rules.
	Reachable Network `json:"reachable,omitempty"`
	// Resolver is the address and port of the DNS server to ask. If it is empty,
	// the host's resolver is used.
	Resolver string `json:"resolver,omitempty"`
	// BytesPerSecond bounds the rate at which a sandbox sends, and the rate at
	// which it receives. Bytes bounds sent and received bytes together over the
	// sandbox's life. Connections bounds the connections that are open at one
	// time. Zero is the default for Connections, and no bound for the other
	// fields.
	BytesPerSecond int64 `json:"bytes_per_second,omitempty"`
	Bytes          int64 `json:"bytes,omitempty"`
	Connections    int   `json:"connections,omitempty"`
}
