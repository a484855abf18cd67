package pool

import (
	"context"
	"os"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/driver/fake"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// always is a pool that has a warm box whenever one is asked for, and none
// otherwise, so that each box of the suite is a claimed one.
type always struct{ *Pool }

func (a always) Create(ctx context.Context, spec *driver.Spec) (driver.Box, error) {
	a.mu.Lock()
	s := a.shapeOfLocked(spec)
	a.mu.Unlock()
	if s != nil {
		_ = a.add(ctx, s, true) // what is refused warm is refused cold
	}
	return a.Pool.Create(ctx, spec)
}

var harness = drivertest.Harness{
	Name: "pool",
	Open: func(dir string) (driver.Driver, error) {
		d, err := fake.New(fake.Options{Dir: dir, Stderr: os.Stderr})
		if err != nil {
			return nil, err
		}
		p, err := New(Options{Driver: d, Ledger: newStub()})
		return always{p}, err
	},
	Spec: func() *driver.Spec {
		return &driver.Spec{
			ID: sandbox.NewID(), Image: sandbox.ImageHost, Hostname: "box",
			Limits: sandbox.DefaultLimits(), Network: sandbox.NetworkNone,
			AllowUnenforced: fake.Limits(),
		}
	},
	// The others are about the guest, which a pool has no part in.
	Groups:    []string{"Driver", "Life", "Refuse", "Cancel", "Many", "Owner", "Pause", "Receipt", "Workspace"},
	Leftovers: fake.Leftovers,
	Processes: fake.Processes,
	Python:    "python3",
}

func TestMain(m *testing.M) {
	fake.Hook()
	drivertest.Main(m, harness)
}

func TestSuite(t *testing.T) { drivertest.Run(t, harness) }
