package sandbox

import (
	"net/netip"
	"slices"
	"strings"
)

// denySign begins a denied range in a [Network].
const denySign = "!"

// Denied returns the ranges that n denies to "internet" and to names. n is
// canonical.
func (n Network) Denied() []netip.Prefix {
	var ranges []netip.Prefix
	for text := range strings.SplitSeq(string(n), ",") {
		if text, ok := strings.CutPrefix(text, denySign); ok {
			if r, ok := parseRange(text); ok {
				ranges = append(ranges, r)
			}
		}
	}
	return ranges
}

func (n Network) deniedTexts() []string {
	var texts []string
	for _, r := range n.Denied() {
		texts = append(texts, deniedText(r))
	}
	return texts
}

// CheckAllows returns an error if n denies a range. Policies that bound others may
// not: [Network.Within] and [Network.Common] compare with their rules only. The
// error wraps [Invalid].
func (n Network) CheckAllows() error {
	if denied := n.deniedTexts(); len(denied) > 0 {
		return WithHint(Errorf(Invalid, "network: %s denies a range, and only the network of a sandbox can", denied[0]),
			"list the destinations that are allowed")
	}
	return nil
}

// networkOf joins the texts of rules and of denied ranges, in canonical form.
func networkOf(rules, denied []string) Network {
	return Network(strings.Join(slices.Concat(rules, denied), ","))
}

func deniedText(r netip.Prefix) string { return denySign + NetworkRule{Range: r}.String() }

// parseDenied parses a denied range, without its sign.
func parseDenied(text string) (netip.Prefix, error) {
	wrong := func(why, hint string) (netip.Prefix, error) {
		return netip.Prefix{}, WithHint(Errorf(Invalid, "network: %.80q %s", denySign+text, why), "%s", hint)
	}
	r, ok := parseRange(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
	switch {
	case !ok:
		return wrong("does not deny an address or a range of addresses", "write it like !192.0.2.7 or !192.0.2.0/24, without a port; a name cannot be denied")
	case r != r.Masked():
		return wrong("does not begin at the first address of its range", "write it as "+denySign+r.Masked().String())
	}
	return r, nil
}
