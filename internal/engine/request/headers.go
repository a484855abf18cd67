package request

import (
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// AddHeaderRules checks the header rules of a sandbox with the policy n and with the
// operator's secrets, and returns all together. A rule widens nothing: the policy
// must allow its host. A header that a secret uses at that host is refused, unless
// the value has the secret's placeholder.
func AddHeaderRules(n sandbox.Network, secrets, rules []sandbox.Secret) ([]sandbox.Secret, error) {
	if err := sandbox.CheckHeaderRules(rules); err != nil {
		return nil, err
	}
	for _, rule := range rules {
		if err := rule.Hosts.Within(n); err != nil {
			return nil, sandbox.WithHint(Invalid("rules: the sandbox's network does not allow %s, and a rule does not change that", rule.Hosts),
				"allow the host (allowOut), if this server does, or leave its rules out")
		}
		for _, s := range secrets {
			fits, has := sharesHeader(&s, &rule), strings.Contains(rule.Value.Reveal(), s.Placeholder())
			if fits == has {
				continue
			}
			if has {
				return nil, sandbox.WithHint(Invalid("rules: the operator's secret %s may not be in the header %s of %s", s.Name, rule.Headers[0], rule.Hosts),
					"use it in a header and for a host that the operator names, or ask the operator to name this one")
			}
			return nil, sandbox.WithHint(Invalid("rules: the operator's secret %s uses the header %s of %s", s.Name, rule.Headers[0], rule.Hosts),
				"leave the header out: programs have the secret as the variable %s. To set it in each request, use ${e2b.secrets.%[1]s} as the value", s.Name)
		}
	}
	return slices.Concat(secrets, rules), nil
}

// sharesHeader reports whether a secret may be in the header of a rule.
func sharesHeader(s, rule *sandbox.Secret) bool {
	return s.TakesHeader(rule.Headers[0]) && slices.ContainsFunc(rule.Hosts.Rules(), func(r sandbox.NetworkRule) bool {
		return s.IsFor(r.Host, r.Port)
	})
}
