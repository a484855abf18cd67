package verdict

import (
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestAdvise(t *testing.T) {
	for _, c := range []struct {
		network sandbox.Network
		output  string
		want    string
	}{
		{"none", "HTTPSConnectionPool(host='pypi.org', port=443): Max retries exceeded", `"pypi.org,files.pythonhosted.org"`},
		{"none", "curl: (6) Could not resolve host: a.example", `"a.example"`},
		{"none", "fatal: unable to access 'https://github.com/x/': Could not resolve host: github.com\n", `"github.com"`},
		{"none", "getaddrinfo EAI_AGAIN registry.npmjs.org", `"registry.npmjs.org"`},
		{"none", "ERROR: No matching distribution found for rich", `"pypi.org,files.pythonhosted.org"`},
		{"none", "Err:1 http://deb.debian.org\n  Could not resolve 'deb.debian.org'", `"deb.debian.org"`},
		{"none", "dial tcp: lookup proxy.golang.org: Temporary failure in name resolution", `"proxy.golang.org"`},
		{"none", "Could not resolve host: localhost", ""},
		{"none", "all is well", ""},
		{"a.example", "Could not resolve host: b.example", ""}, // the record knows
	} {
		v := sandbox.Verdict{Code: sandbox.Failed}
		Advise(&v, c.network, sandbox.NetworkInternet, nil, c.output)
		if c.want == "" != (v.NextStep == "") || !strings.Contains(v.NextStep, c.want) {
			t.Errorf("%s: %q: %q, want %s", c.network, c.output, v.NextStep, c.want)
		}
	}
	// A protocol that does not say its host needs its port in the rule; on the
	// web's ports that is of no use.
	used := &sandbox.RunNetwork{Blocked: []sandbox.Destination{
		{Host: "a.example", Port: 22, Blocked: sandbox.BlockedOpaque}, {Host: "a.example", Port: 443, Blocked: sandbox.BlockedOpaque},
	}}
	other := sandbox.Verdict{Code: sandbox.Failed}
	Advise(&other, "a.example", "a.example,a.example:22", used, "")
	if !strings.HasSuffix(other.NextStep, `"a.example,a.example:22"`) {
		t.Errorf("for another protocol: %q", other.NextStep)
	}
	// An address, and a port of this machine, are rules as well.
	used.Blocked = []sandbox.Destination{
		{Host: "1.1.1.1", Port: 80, Blocked: sandbox.BlockedPolicy}, {Host: sandbox.ThisMachine, Port: 8000, Blocked: sandbox.BlockedHost},
		{Host: "10.0.0.1", Port: 80, Blocked: sandbox.BlockedPrivate},
	}
	addresses := sandbox.Verdict{Code: sandbox.Failed}
	Advise(&addresses, "8.8.8.8", "1.1.1.1,8.8.8.8,host.glovebox.internal:8000", used, "")
	if !strings.HasSuffix(addresses.NextStep, `"8.8.8.8,1.1.1.1,host.glovebox.internal:8000"`) {
		t.Errorf("for addresses: %q", addresses.NextStep)
	}
	// A name that is allowed and has no address needs no rule.
	used.Blocked = []sandbox.Destination{{Host: "a.example", Blocked: sandbox.BlockedUnresolved}, {Host: "a.example", Blocked: sandbox.BlockedUnresolved}}
	missing := sandbox.Verdict{Code: sandbox.Failed}
	Advise(&missing, "a.example", "a.example", used, "")
	if !strings.HasPrefix(missing.NextStep, "the network allows a.example, and the machine that runs Glovebox could not resolve it") {
		t.Errorf("for a name without an address: %q", missing.NextStep)
	}
	// The operator may allow less.
	for output, want := range map[string]string{
		"Could not resolve host: a.example": `"a.example"` + needsOperator,
		noRoute:                             `"example.com"` + needsOperator,
	} {
		for _, most := range []sandbox.Network{"", "none"} {
			v := sandbox.Verdict{Code: sandbox.Failed}
			Advise(&v, "none", most, nil, output)
			if !strings.HasSuffix(v.NextStep, want) {
				t.Errorf("%s, at most %q: %q", output, most, v.NextStep)
			}
		}
	}
	ok := sandbox.Verdict{Code: sandbox.OK}
	Advise(&ok, "none", "none", nil, "Could not resolve host: a.example")
	if ok.NextStep != "" {
		t.Errorf("a run that is ok is advised: %q", ok.NextStep)
	}
}
