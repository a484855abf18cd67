package e2bapi

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// networkRule is a rule of E2B's network policy for one host. A field that is not
// here would change requests in a way that is not offered.
type networkRule struct {
	Transform *struct {
		Headers map[string]string `json:"headers"`
	} `json:"transform"`
}

// The placeholders in E2B's headers: of a secret's value, and of an identity's token.
const (
	secretMark = "${e2b.secrets."
	tokenMark  = "${e2b.identity."
)

// headerRules returns the rules of a network policy, or nil if it has none. Values are
// in no error.
func (s *Server) headerRules(p sandbox.Principal, c *networkConfig) ([]sandbox.Secret, error) {
	if c == nil || len(c.Rules) == 0 {
		return nil, nil
	}
	var rules []sandbox.Secret
	var hosts map[string][]networkRule
	d := json.NewDecoder(bytes.NewReader(c.Rules))
	d.DisallowUnknownFields()
	if err := d.Decode(&hosts); err != nil {
		if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
			return nil, sandbox.Errorf(sandbox.Unsupported, "network: rules: %s: a rule has transform, and a transform has headers, nothing else", field)
		}
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "network: rules: not in E2B's form"),
			`write {"api.example.com": [{"transform": {"headers": {"Authorization": "..."}}}]}`)
	}
	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		for _, rule := range hosts[host] {
			if rule.Transform == nil {
				continue
			}
			for _, name := range slices.Sorted(maps.Keys(rule.Transform.Headers)) {
				value, err := s.fill(p, host, rule.Transform.Headers[name])
				if err != nil {
					return nil, err
				}
				made, err := sandbox.NewHeaderRule(host, name, value)
				if err != nil {
					return nil, err
				}
				rules = append(rules, made)
			}
		}
	}
	return rules, nil
}

// fill replaces E2B's placeholders of secrets in a value by those of the operator's
// secrets. The sandbox's network replaces these by the values.
func (s *Server) fill(p sandbox.Principal, host, value string) (string, error) {
	if strings.Contains(value, tokenMark) {
		return "", sandbox.Errorf(sandbox.Unsupported, "network: rules: %s: there are no workload identities", short(host))
	}
	var b strings.Builder
	for {
		before, after, found := strings.Cut(value, secretMark)
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		name, rest, closed := strings.Cut(after, "}")
		i := slices.IndexFunc(s.opts.Secrets, func(secret sandbox.Secret) bool { return secret.Name == name && secret.UsedBy(p) })
		if !closed || i < 0 {
			return "", sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "network: rules: %s: the value names a secret that is not there", short(host)),
				"name one of the operator's secrets, which Secret.list returns, or write the value itself")
		}
		b.WriteString(s.opts.Secrets[i].Placeholder())
		value = rest
	}
}
