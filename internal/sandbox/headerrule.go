package sandbox

import (
	"net/textproto"
	"slices"
	"strings"
)

// Bounds on the header rules of a sandbox. maxRuleName and maxRuleValue are in
// bytes, and maxRuleBytes bounds all hosts, names and values together.
const (
	maxRuleHosts   = 10
	maxRuleHeaders = 20 // of one host
	maxRuleName    = 64
	maxRuleValue   = 2 << 10
	maxRuleBytes   = 16 << 10
)

// NewHeaderRule returns the rule that the sandbox's network sets a header in each
// HTTPS request to a host. The host may end in a colon and a port; without one, it
// is port 443. The rule is a secret with Always. The value is
// the caller's, and may contain placeholders of other secrets. The error wraps
// [Invalid], names the host and the header, and never contains the value.
func NewHeaderRule(host, header, value string) (Secret, error) {
	wrong := func(hint, why string, args ...any) (Secret, error) {
		return Secret{}, WithHint(Errorf(Invalid, "rules: %.64q: header %.64q "+why, append([]any{host, header}, args...)...), "%s", hint)
	}
	hosts, err := ParseNetwork(host)
	if err != nil || len(hosts.Rules()) != 1 || hosts.CheckAllows() != nil {
		return Secret{}, badRuleHost(host)
	}
	r := hosts.Rules()[0]
	if r.Host == "" || r.IsThisMachine() || r.Port == clearPort || strings.Contains(string(hosts), "*") {
		return Secret{}, badRuleHost(host)
	}
	name := textproto.CanonicalMIMEHeaderKey(header)
	switch {
	case name == "" || len(name) > maxRuleName || strings.Trim(name, headerCharacters) != "":
		return wrong("write a name, like Authorization", "is not a header name of up to %d characters", maxRuleName)
	case slices.Contains(unfitHeaders, name) || strings.HasPrefix(name, "Proxy-") || name == "Http2-Settings":
		return wrong("leave it out", "cannot be set, because it controls the connection or the addressee of a request")
	case value == "":
		return wrong("give it a value, or leave it out", "has no value; a rule cannot remove a header")
	case len(value) > maxRuleValue:
		return wrong("use a shorter value", "has %d bytes; the maximum is %d", len(value), maxRuleValue)
	case strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c == 0x7f }):
		return wrong("encode the value; a header is one line of text", "has control characters")
	}
	if r.Port == 0 {
		r.Port = securePort
	}
	return Secret{Hosts: Network(r.String()), Headers: []string{name}, Always: true, Value: NewSecretValue(value)}, nil
}

func badRuleHost(host string) error {
	return WithHint(Errorf(Invalid, "rules: %.64q is not the name of one host", host), "write a host name, like api.example.com or api.example.com:8443; rules are for HTTPS")
}

// CheckHeaderRules checks the header rules of one sandbox together. The error
// wraps [Invalid].
func CheckHeaderRules(rules []Secret) error {
	headers, total := map[Network][]string{}, 0
	for _, r := range rules {
		if !r.Always || len(r.Headers) != 1 {
			return Errorf(Invalid, "rules: a rule has one header")
		}
		name := r.Headers[0]
		if slices.Contains(headers[r.Hosts], name) {
			return WithHint(Errorf(Invalid, "rules: %s has the header %s twice", r.Hosts, name), "name each host and each header once; case makes no difference")
		}
		headers[r.Hosts] = append(headers[r.Hosts], name)
		if n := len(headers[r.Hosts]); n > maxRuleHeaders {
			return WithHint(Errorf(Invalid, "rules: %s has more than %d headers", r.Hosts, maxRuleHeaders), "set fewer headers")
		}
		total += len(r.Hosts) + len(name) + len(r.Value.Reveal())
	}
	if len(headers) > maxRuleHosts {
		return WithHint(Errorf(Invalid, "rules: there are %d hosts; the maximum is %d", len(headers), maxRuleHosts), "set headers for fewer hosts")
	}
	if total > maxRuleBytes {
		return WithHint(Errorf(Invalid, "rules: hosts, names and values have %d bytes together; the maximum is %d", total, maxRuleBytes), "set fewer headers, or shorter values")
	}
	return nil
}

// clearPort is the port of HTTP without TLS.
const clearPort = 80

// NeedsTLS reports whether the secret is a header rule for the host of that name,
// and a request on that port would be for the same service without TLS. The name
// is in lower case.
func (s *Secret) NeedsTLS(name string, port uint16) bool {
	return s.Always && slices.ContainsFunc(s.Hosts.Rules(), func(r NetworkRule) bool {
		return r.AllowsName(name) && (port == clearPort || port == r.Port)
	})
}

// IsLost reports whether the value is gone, because the process that had it has
// ended. Only a header rule can be lost: its value is never empty.
func (s *Secret) IsLost() bool { return s.Always && s.Value.Reveal() == "" }
