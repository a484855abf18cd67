package e2bapi

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// networkConfig is E2B's network policy.
type networkConfig struct {
	AllowOut []string `json:"allowOut,omitempty"`
	DenyOut  []string `json:"denyOut,omitempty"`

	AllowPublicTraffic *bool           `json:"allowPublicTraffic,omitempty"`
	MaskRequestHost    string          `json:"maskRequestHost,omitempty"`
	HTTPSPorts         []int           `json:"httpsPorts,omitempty"`
	EgressProxy        json.RawMessage `json:"egressProxy,omitempty"`
	Rules              json.RawMessage `json:"rules,omitempty"`
}

// all is E2B's notation for all destinations.
const all = "0.0.0.0/0"

// public reports whether a creator accepts that ports of the sandbox need no token.
// That is E2B's default, and its Python client always sends it.
func (c *networkConfig) public() bool {
	return c == nil || c.AllowPublicTraffic == nil || *c.AllowPublicTraffic
}

// portPlace stands for the port in a maskRequestHost.
const portPlace = "${PORT}"

var hostPattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?(:[0-9]{1,5})?$`)

// validHost reports whether a maskRequestHost is a host, with or without a port.
func validHost(mask string) bool {
	return hostPattern.MatchString(strings.ReplaceAll(mask, portPlace, "0"))
}

// networkOf returns the network policy for a request; "" is the server's default.
// In E2B's policy everything is allowed that is not denied. allowOut only lists
// exceptions from denyOut. Here, everything is what the operator allows.
func (s *Server) networkOf(internet *bool, c *networkConfig) (sandbox.Network, error) {
	if c == nil {
		c = &networkConfig{}
	}
	unsupported := func(what string) (sandbox.Network, error) {
		return "", sandbox.Errorf(sandbox.Unsupported, "network: %s", what)
	}
	switch {
	case len(c.HTTPSPorts) > 0:
		return unsupported("httpsPorts: programs are asked by HTTP")
	case c.MaskRequestHost != "" && !validHost(c.MaskRequestHost):
		return "", sandbox.Errorf(sandbox.Invalid, "network: maskRequestHost: %s is not a host name, which may end in a colon and a port or %s",
			short(c.MaskRequestHost), portPlace)
	case len(c.EgressProxy) > 0 && string(c.EgressProxy) != "null":
		return unsupported("egressProxy: there are no proxies for sandboxes")
	}
	switch {
	case slices.Contains(c.AllowOut, all):
		return s.allowed(), nil
	case internet != nil && !*internet || slices.Contains(c.DenyOut, all):
		if len(c.AllowOut) == 0 {
			return sandbox.NetworkNone, nil
		}
		return sandbox.ParseNetwork(c.AllowOut...)
	case len(c.DenyOut) > 0:
		return s.allBut(c.DenyOut, c.AllowOut)
	case internet != nil:
		return s.allowed(), nil
	}
	return "", nil
}

// allowed returns everything that the operator allows.
func (s *Server) allowed() sandbox.Network {
	return s.opts.Engine.AllowedNetwork(sandbox.NetworkInternet)
}

// allBut returns everything that the operator allows, without the denied addresses
// and ranges. The addresses and ranges of but stay allowed: E2B refuses names there.
func (s *Server) allBut(denied, but []string) (sandbox.Network, error) {
	ranges, err := sandbox.ParseNetwork(but...)
	if err != nil {
		return "", err
	}
	if ranges.Ranges() != ranges {
		return "", sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "network: allowOut has names, and denyOut lacks %s", all),
			"deny everything (ALL_TRAFFIC), or allow addresses only")
	}
	rules := []string{string(ranges)}
	for _, d := range denied {
		rules = append(rules, "!"+d)
	}
	parsed, err := sandbox.ParseNetwork(append(rules, string(sandbox.NetworkInternet))...)
	if err != nil {
		return "", err
	}
	open, err := without(s.allowed(), parsed.Denied(), ranges)
	if err != nil {
		return "", err
	}
	if len(open) == 0 { // nothing that could be denied is left
		return cmp.Or(ranges, sandbox.NetworkNone), nil
	}
	return sandbox.ParseNetwork(append(rules, open...)...)
}

// without returns the rules of n except those for ranges that are denied. A rule with
// a range wins over denied ranges, and so one of which only a part is denied is an
// error, unless but covers the rule.
func without(n sandbox.Network, denied []netip.Prefix, but sandbox.Network) ([]string, error) {
	var left []string
	for _, r := range n.Rules() {
		text := r.String()
		overlaps := func(d netip.Prefix) bool { return r.Range.IsValid() && d.Overlaps(r.Range) }
		if slices.ContainsFunc(denied, func(d netip.Prefix) bool { return overlaps(d) && d.Bits() <= r.Range.Bits() }) {
			continue
		}
		if i := slices.IndexFunc(denied, overlaps); i >= 0 && sandbox.Network(text).Within(but) != nil {
			return nil, sandbox.WithHint(
				sandbox.Errorf(sandbox.Invalid, "network: denyOut: %s is a part of %s, which the operator allows as a whole", sandbox.NetworkRule{Range: denied[i]}, text),
				"deny %s, or deny everything (ALL_TRAFFIC) and list in allowOut what is needed", r.Range)
		}
		left = append(left, text)
	}
	return left, nil
}

// setNetwork replaces the network policy and the header rules of a sandbox that has a
// network.
func (s *Server) setNetwork(r *http.Request, p sandbox.Principal) (int, any, error) {
	var in struct {
		networkConfig
		Internet *bool `json:"allow_internet_access"`
	}
	if err := readBody(r, &in); err != nil {
		return 0, nil, err
	}
	n, err := s.networkOf(in.Internet, &in.networkConfig)
	if err != nil {
		return 0, nil, err
	}
	if n == "" { // nothing is denied
		n = s.allowed()
	}
	rules, err := s.headerRules(p, &in.networkConfig)
	if err != nil {
		return 0, nil, err
	}
	if rules == nil { // E2B's policy replaces all rules
		rules = []sandbox.Secret{}
	}
	sb, err := s.get(r, p)
	if err != nil {
		return 0, nil, err
	}
	if !in.public() && sb.Labels[labelPublic] != "" || in.MaskRequestHost != sb.Labels[labelHost] && in.MaskRequestHost != "" {
		return 0, nil, sandbox.Errorf(sandbox.Unsupported, "network: allowPublicTraffic and maskRequestHost are set when a sandbox is made, and stay")
	}
	_, err = s.opts.Engine.SetNetworkRules(r.Context(), p, idOf(r), n, rules)
	return http.StatusNoContent, nil, s.gone(r, p, err)
}

// networkInfo returns the network policy that is in force, in E2B's format, without
// its rules: their values are only in the memory of the network's process.
func (s *Server) networkInfo(sb sandbox.Sandbox) (internet bool, c *networkConfig) {
	public := s.isPublic(sb)
	c = &networkConfig{DenyOut: []string{all}, AllowPublicTraffic: &public, MaskRequestHost: sb.Labels[labelHost]}
	for _, r := range sb.Network.Rules() {
		if r.Internet && r.Port == 0 {
			internet = true
			continue
		}
		c.AllowOut = append(c.AllowOut, r.String())
	}
	if internet {
		c.DenyOut = nil
		for _, d := range sb.Network.Denied() {
			c.DenyOut = append(c.DenyOut, sandbox.NetworkRule{Range: d}.String())
		}
		if c.DenyOut == nil {
			c.AllowOut = nil // nothing is denied that it excepts
		}
	}
	return internet, c
}

// isPublic reports whether ports of a sandbox need no token.
func (s *Server) isPublic(sb sandbox.Sandbox) bool {
	return s.opts.PublicPorts && sb.Labels[labelPublic] != ""
}
