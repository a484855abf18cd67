package engine

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/fake"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// networkDriver adds to a driver boxes that have a network, in name.
type networkDriver struct {
	driver.Driver
	mu      sync.Mutex
	traffic sandbox.Traffic // of all boxes
	policy  sandbox.Network
	terms   sandbox.NetworkTerms
	secrets []sandbox.Secret
	rules   []sandbox.Secret // of the last change
}

func (d *networkDriver) Info() driver.Info {
	info := d.Driver.Info()
	info.Features.Network, info.Features.Pause = true, false
	return info
}

func (d *networkDriver) Create(ctx context.Context, spec *driver.Spec) (driver.Box, error) {
	d.policy, d.terms, d.secrets = spec.Network, spec.NetworkTerms, spec.Secrets
	plain := *spec
	plain.Network = sandbox.NetworkNone
	b, err := d.Driver.Create(ctx, &plain)
	return networkBox{b, d}, err
}

type networkBox struct {
	driver.Box
	d *networkDriver
}

func (b networkBox) Traffic(_ context.Context, after int64) (sandbox.Traffic, error) {
	b.d.mu.Lock()
	defer b.d.mu.Unlock()
	t := b.d.traffic
	t.Connections = nil
	for _, c := range b.d.traffic.Connections {
		if c.Number > after {
			t.Connections = append(t.Connections, c)
		}
	}
	return t, nil
}

func (b networkBox) SetNetwork(_ context.Context, n sandbox.Network, rules []sandbox.Secret) error {
	b.d.policy, b.d.rules = n, rules
	return nil
}

func (networkBox) Authority(context.Context) ([]byte, error) { return nil, nil }

func (d *networkDriver) count(t sandbox.Traffic) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.traffic = t
}

func TestRunNetwork(t *testing.T) {
	d := &networkDriver{}
	terms := sandbox.NetworkTerms{Connections: 7}
	e := openFake(t, t.TempDir(), func(o *Options, _ *fake.Options) {
		o.Driver, o.MaxNetwork, o.NetworkTerms = d, "*.example.com,example.com", terms
	})
	ctx := t.Context()
	sb, err := e.Create(ctx, sandbox.Local, sandbox.CreateRequest{Network: "example.com"})
	if err != nil || sb.Network != "example.com" || d.policy != "example.com" || d.terms.Connections != 7 {
		t.Fatalf("%+v, %v; the driver had %q", sb, err, d.policy)
	}
	reached := sandbox.Destination{Host: "example.com", Port: 443, Connections: 1, Sent: 10, Received: 100}
	before := sandbox.Destination{Host: "early.example.com", Port: 443, Connections: 1}
	blocked := sandbox.Destination{Host: "pypi.org", Blocked: sandbox.BlockedPolicy, Connections: 1}
	d.count(sandbox.Traffic{Destinations: []sandbox.Destination{before, reached}})
	r, err := e.Start(ctx, sandbox.Local, sandbox.RunRequest{SandboxID: sb.ID, Commands: []string{"read x; exit 1"}, KeepStdin: true})
	if err != nil {
		t.Fatal(err)
	}
	more := reached
	more.Connections, more.Sent, more.Received = 3, 30, 300
	d.count(sandbox.Traffic{
		Destinations: []sandbox.Destination{before, more, blocked},
		Connections:  []sandbox.Connection{{Number: 1, Host: "example.com", Port: 443}, {Number: 2, Host: "pypi.org", Blocked: sandbox.BlockedPolicy}},
	})
	if err := e.SendInput(ctx, sandbox.Local, r.ID, nil, true); err != nil {
		t.Fatal(err)
	}
	if r, err = e.Wait(ctx, sandbox.Local, r.ID); err != nil {
		t.Fatal(err)
	}
	more.Connections, more.Sent, more.Received = 2, 20, 200
	want := &sandbox.RunNetwork{Reached: []sandbox.Destination{more}, Blocked: []sandbox.Destination{blocked}}
	if diff := cmp.Diff(want, r.Network); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if !strings.Contains(r.Verdict.NextStep, `network "example.com,pypi.org,files.pythonhosted.org"`) {
		t.Errorf("next step: %q", r.Verdict.NextStep)
	}
	list, err := e.Connections(ctx, sandbox.Local, sb.ID, 10)
	if err != nil || len(list) != 2 || list[1].Host != "pypi.org" {
		t.Errorf("connections: %+v, %v", list, err)
	}
	if _, err := e.Connections(ctx, "somebody", sb.ID, 10); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("somebody else's: %v", err)
	}

	if sb, err = e.SetNetwork(ctx, sandbox.Local, sb.ID, "a.example.com"); err != nil || sb.Network != "a.example.com" || d.policy != "a.example.com" {
		t.Errorf("SetNetwork: %+v, %v; the driver has %q", sb.Network, err, d.policy)
	}
	for n, kind := range map[sandbox.Network]sandbox.Kind{"internet": sandbox.Invalid, "": sandbox.Invalid, "everything": sandbox.Invalid} {
		if _, err := e.SetNetwork(ctx, sandbox.Local, sb.ID, n); sandbox.KindOf(err) != kind {
			t.Errorf("SetNetwork %q: %v", n, err)
		}
	}
	none, err := e.Create(ctx, sandbox.Local, sandbox.CreateRequest{Network: sandbox.NetworkNone})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := e.SetNetwork(ctx, sandbox.Local, none.ID, sandbox.NetworkNone); err != nil || got.Network != sandbox.NetworkNone {
		t.Errorf("SetNetwork none of a sandbox without a network: %+v, %v", got.Network, err)
	}
	if _, err := e.SetNetwork(ctx, sandbox.Local, none.ID, "example.com"); !errors.Is(err, sandbox.Unsupported) || strings.Contains(err.Error(), "box of") {
		t.Errorf("SetNetwork of a sandbox without a network: %v", err)
	}
	if got := e.AllowedNetwork(sandbox.NetworkInternet); got != "*.example.com,example.com" {
		t.Errorf("of internet, %s is allowed", got)
	}
	if _, err := e.SetNetwork(ctx, "somebody", sb.ID, "none"); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("SetNetwork of somebody else's: %v", err)
	}
	// What was counted last is recorded before the sandbox is gone.
	d.count(sandbox.Traffic{Connections: []sandbox.Connection{{Number: 3, Host: "a.example.com"}}})
	if err := e.Stop(ctx, sandbox.Local, sb.ID); err != nil {
		t.Fatal(err)
	}
	if list, err := e.Connections(ctx, sandbox.Local, sb.ID, 10); err != nil || len(list) != 3 {
		t.Errorf("after the end: %+v, %v", list, err)
	}
}

// TestExcess finds what a sandbox would have above the defaults, and nothing about the
// sandbox of another principal.
func TestExcess(t *testing.T) {
	e := openFake(t, t.TempDir(), func(o *Options, _ *fake.Options) {
		o.Driver, o.MaxNetwork = &networkDriver{}, "*.example.com,example.com"
	})
	x, err := e.CreateExcess(sandbox.CreateRequest{Network: "example.com", Limits: sandbox.Limits{CPUs: 2}})
	if want := (sandbox.Excess{Network: "example.com", Default: sandbox.NetworkNone, Limits: []string{"cpus 2 (default 1)"}}); err != nil || !cmp.Equal(x, want) {
		t.Errorf("%+v, %v", x, err)
	}
	if x, err := e.CreateExcess(sandbox.CreateRequest{Network: "internet"}); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("above the maximum: %+v, %v", x, err)
	}
	sb, err := e.Create(t.Context(), sandbox.Local, sandbox.CreateRequest{Network: "example.com"})
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[sandbox.Network]sandbox.Network{"none": "", "example.com": "", "a.example.com": "a.example.com"} {
		if x, err := e.NetworkExcess(t.Context(), sandbox.Local, sb.ID, n); err != nil || x.Network != want {
			t.Errorf("%s: %+v, %v", n, x, err)
		}
	}
	for id, p := range map[string]sandbox.Principal{sb.ID: "mallory", sandbox.NewID(): sandbox.Local} {
		if x, err := e.NetworkExcess(t.Context(), p, id, "a.example.com"); sandbox.KindOf(err) != sandbox.NotFound {
			t.Errorf("%s as %s: %+v, %v", id, p, x, err)
		}
	}
}
