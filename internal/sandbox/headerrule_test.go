package sandbox

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHeaderRule(t *testing.T) {
	for _, c := range []struct{ host, header, hosts, name string }{
		{"api.example.com", "Authorization", "api.example.com:443", "Authorization"},
		{"API.Example.com", "x-api-key", "api.example.com:443", "X-Api-Key"},
		{"api.example.com:8443", "X_Key", "api.example.com:8443", "X_key"},
	} {
		r, err := NewHeaderRule(c.host, c.header, "the value")
		if err != nil || string(r.Hosts) != c.hosts || !cmp.Equal(r.Headers, []string{c.name}) || !r.Always || r.Value.Reveal() != "the value" {
			t.Errorf("%+v: %+v, %v", c, r, err)
		}
	}
	const value = "not-to-be-shown"
	for what, c := range map[string]struct{ host, header, value, says string }{
		"no host":            {"", "A", value, "name of one host"},
		"two hosts":          {"a.example,b.example", "A", value, "name of one host"},
		"an address":         {"192.0.2.1", "A", value, "name of one host"},
		"a range":            {"192.0.2.0/24", "A", value, "name of one host"},
		"a pattern":          {"*.example.com", "A", value, "name of one host"},
		"everything":         {"internet", "A", value, "name of one host"},
		"a denied host":      {"!a.example", "A", value, "name of one host"},
		"this machine":       {ThisMachine, "A", value, "name of one host"},
		"port of plain HTTP": {"a.example:80", "A", value, "name of one host"},
		"no header":          {"a.example", "", value, "header name"},
		"a blank":            {"a.example", "A B", value, "header name"},
		"a line":             {"a.example", "A\r\nB", value, "header name"},
		"a colon":            {"a.example", "A:", value, "header name"},
		"a pseudo header":    {"a.example", ":authority", value, "header name"},
		"a long name":        {"a.example", strings.Repeat("a", maxRuleName+1), value, "header name"},
		"no value":           {"a.example", "A", "", "has no value"},
		"a long value":       {"a.example", "A", strings.Repeat(value, maxRuleValue/len(value)+1), "maximum is 2048"},
		"CR":                 {"a.example", "A", value + "\rB: c", "control characters"},
		"LF":                 {"a.example", "A", value + "\nB: c", "control characters"},
		"NUL":                {"a.example", "A", value + "\x00", "control characters"},
	} {
		_, err := NewHeaderRule(c.host, c.header, c.value)
		if !errors.Is(err, Invalid) || HintOf(err) == "" || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error()+HintOf(err), value) {
			t.Errorf("%s: %v, hint %q", what, err, HintOf(err))
		}
	}
	for _, header := range []string{
		"host", "Content-Length", "transfer-encoding", "Connection", "Keep-Alive", "Proxy-Authorization", "proxy-connection", "Proxy-Authenticate",
		"Upgrade", "TE", "Trailer", "Expect", "HTTP2-Settings",
	} {
		if _, err := NewHeaderRule("a.example", header, "x"); !errors.Is(err, Invalid) || !strings.Contains(err.Error(), header) || !strings.Contains(err.Error(), "cannot be set") {
			t.Errorf("%s: %v", header, err)
		}
	}
	if _, err := NewHeaderRule("a.example", strings.Repeat("a", maxRuleName), strings.Repeat("x", maxRuleValue)); err != nil {
		t.Error(err)
	}
}

// rulesFor returns n rules of each of so many hosts, with values of that size.
func rulesFor(t *testing.T, hosts, n, size int) []Secret {
	t.Helper()
	var rules []Secret
	for h := range hosts {
		for i := range n {
			r, err := NewHeaderRule(fmt.Sprintf("h%d.example", h), fmt.Sprintf("N%d", i), strings.Repeat("x", size))
			if err != nil {
				t.Fatal(err)
			}
			rules = append(rules, r)
		}
	}
	return rules
}

func TestCheckHeaderRules(t *testing.T) {
	for what, c := range map[string]struct {
		rules []Secret
		says  string
	}{
		"none":          {nil, ""},
		"most hosts":    {rulesFor(t, maxRuleHosts, 1, 1), ""},
		"a host more":   {rulesFor(t, maxRuleHosts+1, 1, 1), "11 hosts"},
		"most headers":  {rulesFor(t, 1, maxRuleHeaders, 1), ""},
		"a header more": {rulesFor(t, 1, maxRuleHeaders+1, 1), "more than 20 headers"},
		"many bytes":    {rulesFor(t, 1, maxRuleBytes/maxRuleValue-1, maxRuleValue), ""},
		"too many":      {rulesFor(t, 1, maxRuleBytes/maxRuleValue, maxRuleValue), "maximum is 16384"},
		"twice":         {append(rulesFor(t, 1, 1, 1), rulesFor(t, 1, 1, 1)...), "twice"},
		"not a rule":    {[]Secret{{Name: "KEY", Hosts: "a.example:443", Headers: []string{"A"}, Value: NewSecretValue("x")}}, "one header"},
	} {
		err := CheckHeaderRules(c.rules)
		if c.says == "" && err != nil || c.says != "" && (!errors.Is(err, Invalid) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
