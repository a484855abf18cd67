package sandbox

import (
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseNetwork(t *testing.T) {
	for _, c := range []struct {
		in   []string
		want Network
	}{
		{nil, ""},
		{[]string{""}, ""},
		{[]string{"none"}, NetworkNone},
		{[]string{" internet "}, NetworkInternet},
		{[]string{"internet:443"}, "internet:443"},
		{[]string{"PyPI.org.", "files.pythonhosted.org:443"}, "pypi.org,files.pythonhosted.org:443"},
		{[]string{"a.example,*.B.example:80", "a.example"}, "a.example,*.b.example:80"},
		{[]string{"10.1.2.3"}, "10.1.2.3"},
		{[]string{"10.1.2.3/32:22"}, "10.1.2.3:22"},
		{[]string{"10.0.0.0/8"}, "10.0.0.0/8"},
		{[]string{"::ffff:10.1.2.3"}, "10.1.2.3"},
		{[]string{"::ffff:10.0.0.0/104"}, "10.0.0.0/8"},
		{[]string{"2001:DB8::1"}, "2001:db8::1"},
		{[]string{"[2001:db8::1]"}, "2001:db8::1"},
		{[]string{"[2001:db8::1]:443", "[2001:db8::/32]:22"}, "[2001:db8::1]:443,[2001:db8::/32]:22"},
		{[]string{"host.glovebox.internal:5432", "*.glovebox.internal"}, "host.glovebox.internal:5432,*.glovebox.internal"},
		{[]string{"xn--bcher-kva.example"}, "xn--bcher-kva.example"},
		{[]string{"!192.0.2.7, internet", "!192.0.2.7/32"}, "internet,!192.0.2.7"},
		{[]string{"!::ffff:10.0.0.0/104,a.example:80,![2001:DB8::]"}, "a.example:80,!10.0.0.0/8,!2001:db8::"},
	} {
		got, err := ParseNetwork(c.in...)
		if err != nil || got != c.want {
			t.Errorf("ParseNetwork(%q) = %q, %v; want %q", c.in, got, err, c.want)
			continue
		}
		again, err := ParseNetwork(string(got))
		if err != nil || again != got {
			t.Errorf("ParseNetwork(%q) = %q, %v; want the same again", got, again, err)
		}
		if got != "" && got != NetworkNone && len(got.Rules())+len(got.Denied()) != strings.Count(string(got), ",")+1 {
			t.Errorf("%q has %d rules and denies %v", got, len(got.Rules()), got.Denied())
		}
	}
}

func TestParseNetworkRefuses(t *testing.T) {
	for _, in := range []string{
		"0.0.0.0", "[::]:22", "127.0.0.1", "127.0.0.0/8", "127.0.0.1:80", "::1", "[::1]:80", "::ffff:127.0.0.1", "app.localhost", "localhost:80",
		"host.glovebox.internal", "everything", "localhost", "none,internet", "*", "*.", "*.*.example.com", "a..b", "-a.example", "a-.example",
		"http://example.com", "example.com/path", "example.com:0", "example.com:65536", "example.com:x", "example.com:",
		"bücher.example", "a b.example", "127.1", "0x7f.0.0.1", "0177.0.0.1", "2130706433", "1.2.3.4.5", "256.1.1.1",
		"10.0.0.1/8", "10.0.0.0/33", "::ffff:10.0.0.0/90", "fe80::1%eth0", "[::1", "a.example;b.example",
		"!192.0.2.7", "none,!192.0.2.7", "internet,!", "internet,!a.example", "internet,!internet", "internet,!192.0.2.7:80", "internet,!192.0.2.7/24", "internet,!!192.0.2.7",
		strings.Repeat("a", 64) + ".example", strings.Repeat("a.", 130) + "example", "internet.:443",
	} {
		got, err := ParseNetwork(in)
		if err == nil {
			t.Errorf("ParseNetwork(%q) = %q, want an error", in, got)
		} else if KindOf(err) != Invalid {
			t.Errorf("ParseNetwork(%q): %v is of kind %s", in, err, KindOf(err))
		}
	}
	for in, hint := range map[string]string{
		"127.0.0.1:80": "host.glovebox.internal:5432", "localhost": "host.glovebox.internal:5432", "host.glovebox.internal": "write it like",
		"!192.0.2.0/24": "internet,!192.0.2.0/24", "internet,!a.example": "a name cannot be denied", "internet,!10.0.0.1/8": "!10.0.0.0/8",
		"https://pypi.org/simple": "name its host: pypi.org", "http://a.example:80": "name its host: a.example:80",
	} {
		if _, err := ParseNetwork(in); !strings.Contains(HintOf(err), hint) {
			t.Errorf("ParseNetwork(%q): %v, with the hint %q", in, err, HintOf(err))
		}
	}
	var many []string
	for i := range maxNetworkRules + 1 {
		many = append(many, "h"+strings.Repeat("x", i%50)+".example:"+string(rune('1'+i%9))+strings.Repeat("0", i%4))
	}
	for i := range many {
		many[i] = strings.Replace(many[i], "h", "h"+strings.Repeat("y", i/50), 1)
	}
	if _, err := ParseNetwork(many...); err == nil {
		t.Errorf("ParseNetwork takes %d rules", len(many))
	}
}

// TestStoredNetwork reads policies of a version before, which accepted rules that
// are refused now. A box whose record does not decode counts as gone, so the record
// has to decode.
func TestStoredNetwork(t *testing.T) {
	for stored, want := range map[string]struct{ kept, inForce Network }{
		`"none"`:                        {"none", "none"},
		`""`:                            {"", ""},
		`"internet,127.0.0.1:5432"`:     {"internet,127.0.0.1:5432", "internet"},
		`"127.0.0.0/8:22"`:              {"127.0.0.0/8:22", "none"},
		`["::1","10.0.0.0/8"]`:          {"::1,10.0.0.0/8", "10.0.0.0/8"},
		`"app.localhost,a.example"`:     {"app.localhost,a.example", "a.example"},
		`"host.glovebox.internal"`:      {"host.glovebox.internal", "none"},
		`"0.0.0.0:80,0.0.0.0/0:80"`:     {"0.0.0.0:80,0.0.0.0/0:80", "0.0.0.0/0:80"},
		`"internet,::1,!192.0.2.0/24"`:  {"internet,::1,!192.0.2.0/24", "internet,!192.0.2.0/24"},
		`"::1,!192.0.2.0/24"`:           {"::1,!192.0.2.0/24", "none"},
		`"host.glovebox.internal:5432"`: {"host.glovebox.internal:5432", "host.glovebox.internal:5432"},
	} {
		var n Network
		if err := json.Unmarshal([]byte(stored), &n); err != nil || n != want.kept || n.InForce() != want.inForce {
			t.Errorf("%s: %q, in force %q, %v; want %q, %q", stored, n, n.InForce(), err, want.kept, want.inForce)
		}
		if want.kept != want.inForce {
			if got, err := ParseNetwork(string(n)); err == nil {
				t.Errorf("a request for %q is accepted as %q", n, got)
			}
		}
	}
	var n Network
	if err := json.Unmarshal([]byte(`"a..b"`), &n); err == nil {
		t.Errorf("%q is accepted", n)
	}
}

func TestWithin(t *testing.T) {
	for _, c := range []struct {
		n, most Network
		ok      bool
	}{
		{"none", "none", true},
		{"none", "", true},
		{"a.example", "none", false},
		{"a.example", "internet", true},
		{"a.example", "a.example", true},
		{"a.example:443", "a.example", true},
		{"a.example", "a.example:443", false},
		{"a.example:80", "a.example:443", false},
		{"*.a.example", "a.example", false},
		{"a.example", "*.a.example", false},
		{"b.a.example", "*.a.example", true},
		{"c.b.a.example", "*.a.example", true},
		{"*.b.a.example", "*.a.example", true},
		{"*.a.example", "*.a.example", true},
		{"*.a.example", "*.b.a.example", false},
		{"ba.example", "*.a.example", false},
		{"internet", "internet", true},
		{"internet:443", "internet", true},
		{"internet", "internet:443", false},
		{"internet", "0.0.0.0/0,::/0", false},
		{"8.8.8.8", "internet", true},
		{"10.1.2.3", "internet", false},
		{"8.0.0.0/5", "internet", false},
		{"::/0", "internet", false},
		{"2606:4700::/32", "internet", true},
		{"fd00::1", "internet", false},
		{"10.1.2.3", "internet,10.0.0.0/8", true},
		{"10.1.2.3:22", "10.0.0.0/8:22", true},
		{"10.0.0.0/8", "10.0.0.0/9", false},
		{"a.example", "10.0.0.0/8", false},
		{"a.example,b.example", "a.example", false},
		{"host.glovebox.internal:80", "host.glovebox.internal:80", true},
		{"host.glovebox.internal:80", "host.glovebox.internal:81", false},
		{"host.glovebox.internal:80", "internet,*.internal,*.glovebox.internal,0.0.0.0/0", false},
		{"*.glovebox.internal", "host.glovebox.internal:80", false},
		{"internet,!192.0.2.7", "internet", true},
		{"internet,!192.0.2.7", "a.example", false},
	} {
		err := c.n.Within(c.most)
		if (err == nil) != c.ok {
			t.Errorf("%q within %q: %v, want ok %v", c.n, c.most, err, c.ok)
		}
		if err != nil && (KindOf(err) != Invalid || HintOf(err) == "") {
			t.Errorf("%q within %q: %v has kind %s and hint %q", c.n, c.most, err, KindOf(err), HintOf(err))
		}
	}
}

// TestNetworkTerms reads terms as they are kept now, and as the version before
// kept them, without ports.
func TestNetworkTerms(t *testing.T) {
	if got := Network("internet,10.0.0.0/8:22,a.example:80,host.glovebox.internal:80,[fd00::/8]:443,192.0.2.1").Ranges(); got != "10.0.0.0/8:22,host.glovebox.internal:80,[fd00::/8]:443,192.0.2.1" {
		t.Errorf("the ranges are %q", got)
	}
	if got := Network("internet").Ranges(); got != "" {
		t.Errorf("the ranges of internet are %q", got)
	}
	now := NetworkTerms{Reachable: "10.0.0.0/8:22,[fd00::/8]:443", Connections: 3}
	text, err := json.Marshal(now)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]NetworkTerms{
		string(text):  now,
		`{"bytes":5}`: {Bytes: 5},
		`{"reachable":"127.0.0.1:5432,10.0.0.0/8"}`: {Reachable: "127.0.0.1:5432,10.0.0.0/8"}, // refused in a request
		`{"reachable":null}`:                        {},
		`{"reachable":[]}`:                          {},
		`{"connections":0}`:                         {},
		`{"reachable":["10.0.0.0/8","192.0.2.1/32","fd00::/8"],"resolver":"192.0.2.53:53"}`: {Reachable: "10.0.0.0/8,192.0.2.1,fd00::/8", Resolver: "192.0.2.53:53"},
	} {
		var got NetworkTerms
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestPublic(t *testing.T) {
	for _, a := range []string{"8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "172.32.0.1", "::ffff:8.8.8.8", "100.128.0.1"} {
		if !Public(netip.MustParseAddr(a)) {
			t.Errorf("%s is not public", a)
		}
	}
	for _, a := range []string{
		"0.0.0.0", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254", "169.254.169.254", "169.254.170.2",
		"168.63.129.16", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.168.0.1", "198.18.0.1", "224.0.0.1", "239.1.1.1",
		"240.0.0.1", "255.255.255.255", "::", "::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1",
		"64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "fd00:ec2::254", "fd20:ce::254", "fe80::1", "fec0::1", "ff02::1", "2001:db8::1",
		"2002:7f00:1::", "2001:0:53aa:64c::", "100::1", "5f00::1",
	} {
		if Public(netip.MustParseAddr(a)) {
			t.Errorf("%s is public", a)
		}
	}
	if Public(netip.Addr{}) {
		t.Error("no address is public")
	}
}

func TestNetworkJSON(t *testing.T) {
	var got struct{ A, B, C, D Network }
	err := json.Unmarshal([]byte(`{"A":"internet","B":["a.example","10.0.0.0/8:22"],"C":"","D":null}`), &got)
	if err != nil {
		t.Fatal(err)
	}
	want := struct{ A, B, C, D Network }{A: NetworkInternet, B: "a.example,10.0.0.0/8:22"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if err := json.Unmarshal([]byte(`{"A":7}`), &got); KindOf(err) != Invalid {
		t.Errorf("a number: %v", err)
	}
}

func FuzzParseNetwork(f *testing.F) {
	for _, s := range []string{"none", "internet:443", "*.a.example:80,10.0.0.0/8", "[2001:db8::/32]:22", "::ffff:1.2.3.4", "internet,!192.0.2.0/24"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseNetwork(s)
		if err != nil {
			return
		}
		if again, err := ParseNetwork(string(n)); err != nil || again != n {
			t.Errorf("%q gives %q, and that %q, %v", s, n, again, err)
		}
		if err := n.Within(n); err != nil {
			t.Errorf("%q is not within itself: %v", n, err)
		}
	})
}

func TestCheckCanonical(t *testing.T) {
	for n, want := range map[Network]bool{
		NetworkNone:              true,
		"example.com,10.0.0.0/8": true,
		"":                       false,
		"Example.com":            false,
		"none,none":              false,
		"a..b":                   false,
	} {
		if err := n.CheckCanonical(); (err == nil) != want || err != nil && !errors.Is(err, Invalid) {
			t.Errorf("%q: %v; want canonical %t", n, err, want)
		}
	}
}

// TestCommonNetwork finds what two policies both allow.
func TestCommonNetwork(t *testing.T) {
	for _, c := range []struct{ n, most, want Network }{
		{NetworkInternet, NetworkNone, NetworkNone},
		{NetworkNone, NetworkInternet, NetworkNone},
		{NetworkInternet, NetworkInternet, NetworkInternet},
		{NetworkInternet, "internet:443,10.0.0.0/8,host.glovebox.internal:5432", "internet:443"},
		{NetworkInternet, "pypi.org,*.example.com:443,192.0.2.0/24", "pypi.org,*.example.com:443"},
		{NetworkInternet, "pypi.org,8.8.8.8", "pypi.org,8.8.8.8"},
		{"a.example.com,pypi.org", "*.example.com", "a.example.com"},
		{"*.example.com", "a.example.com,pypi.org", "a.example.com"},
		{"10.0.0.0/8", "10.1.0.0/16,internet", "10.1.0.0/16"},
		{"10.0.0.0/8", NetworkInternet, NetworkNone},
		{"internet,!192.0.2.7", "a.example,internet:443", "a.example,internet:443,!192.0.2.7"},
		{"internet,!192.0.2.7", "10.0.0.0/8", NetworkNone},
	} {
		got := c.n.Common(c.most)
		if got != c.want {
			t.Errorf("%s and %s have %s in common, want %s", c.n, c.most, got, c.want)
		}
		if err := got.CheckCanonical(); err != nil {
			t.Errorf("%s: %v", got, err)
		}
		if err := got.Within(c.most); err != nil {
			t.Errorf("%s: %v", got, err)
		}
	}
}

// TestDenied separates the ranges that a policy denies from its rules.
func TestDenied(t *testing.T) {
	n := Network("internet:443,10.1.0.0/16,!192.0.2.7,!2001:db8::/32")
	want := []netip.Prefix{netip.MustParsePrefix("192.0.2.7/32"), netip.MustParsePrefix("2001:db8::/32")}
	if got := n.Denied(); !slices.Equal(got, want) {
		t.Errorf("denied are %v, want %v", got, want)
	}
	if got := n.Ranges(); got != "10.1.0.0/16" {
		t.Errorf("the ranges that it allows are %q", got)
	}
	if err := n.CheckAllows(); KindOf(err) != Invalid || !strings.Contains(err.Error(), "!192.0.2.7") {
		t.Errorf("as a bound of other policies: %v", err)
	}
	for _, n := range []Network{"", NetworkNone, "internet,10.1.0.0/16"} {
		if err := n.CheckAllows(); err != nil || n.Denied() != nil {
			t.Errorf("%q denies %v, %v", n, n.Denied(), err)
		}
	}
}
