package request

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestCreateExcess asks for the defaults, for less, for more, and for too much.
func TestCreateExcess(t *testing.T) {
	r := &Rules{
		Features: driver.Features{Network: true}, Defaults: sandbox.DefaultLimits(), Maxima: sandbox.Limits{MemoryBytes: 4 << 30},
		Network: "pypi.org:443", MaxNetwork: "internet",
	}
	for _, c := range []struct {
		req  sandbox.CreateRequest
		want sandbox.Excess
	}{
		{sandbox.CreateRequest{}, sandbox.Excess{}},
		{sandbox.CreateRequest{Network: "none", Limits: sandbox.Limits{MemoryBytes: 128 << 20, Processes: 256}}, sandbox.Excess{}},
		{sandbox.CreateRequest{Network: "PyPI.org:443"}, sandbox.Excess{}},
		{sandbox.CreateRequest{Network: "pypi.org"}, sandbox.Excess{Network: "pypi.org", Default: "pypi.org:443"}},
		{sandbox.CreateRequest{Limits: sandbox.Limits{MemoryBytes: 4 << 30, Lifetime: sandbox.Forever}}, sandbox.Excess{
			Limits: []string{"memory 4 GiB (default 512 MiB)", "lifetime none (default 24h0m0s)"},
		}},
	} {
		got, err := r.CreateExcess(c.req)
		if d := cmp.Diff(c.want, got); d != "" || err != nil {
			t.Errorf("%+v: %v (-want +got):\n%s", c.req, err, d)
		}
	}
	for _, req := range []sandbox.CreateRequest{{Network: "10.0.0.1:5432"}, {Limits: sandbox.Limits{MemoryBytes: 5 << 30}}, {Network: "!"}} {
		if x, err := r.CreateExcess(req); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("%+v: %+v, %v", req, x, err)
		}
	}
}

// TestNetworkExcess changes the network of a sandbox.
func TestNetworkExcess(t *testing.T) {
	r := &Rules{Features: driver.Features{Network: true}, Network: "pypi.org:443", MaxNetwork: "internet"}
	for _, c := range []struct {
		asked, has, want sandbox.Network
	}{
		{"none", "internet", ""},
		{"example.com", "internet", ""},
		{"pypi.org:443", "example.com", ""},
		{"internet", "example.com", "internet"},
		{"internet", "internet,!192.0.2.0/24", "internet"},
		{"internet,!192.0.0.0/16", "internet,!192.0.2.0/24", ""},
	} {
		if x, err := r.NetworkExcess(c.asked, c.has); x.Network != c.want || err != nil {
			t.Errorf("%s over %s: %+v, %v", c.asked, c.has, x, err)
		}
	}
	if x, err := r.NetworkExcess("10.0.0.1:22", "none"); err == nil {
		t.Errorf("beyond the maximum: %+v", x)
	}
}
