package fake

import (
	"os"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// harnesses are the ways in which the driver can be set up.
var harnesses = []drivertest.Harness{
	harness("plain", nil, Options{}, func(s *driver.Spec) { s.AllowUnenforced = Limits() }),
	// What differs, differs in these.
	harness("other", []string{"Driver", "Life", "Refuse", "Owner", "Pause", "Receipt", "Workspace"}, Options{
		Pretend:   sandbox.ControlNames(),
		Incidents: func(string) driver.Incidents { return driver.Incidents{} },
		NoPause:   true,
		NoDetach:  true,

		NoWorkspace: true,
	}, func(*driver.Spec) {}),
}

func TestMain(m *testing.M) {
	Hook()
	drivertest.Main(m, harnesses...)
}

func TestDriver(t *testing.T) {
	for _, h := range harnesses {
		t.Run(h.Name, func(t *testing.T) { drivertest.Run(t, h) })
	}
}

func BenchmarkDriver(b *testing.B) { drivertest.Benchmark(b, harnesses[0]) }

func harness(name string, groups []string, opts Options, change func(*driver.Spec)) drivertest.Harness {
	return drivertest.Harness{
		Name: name,
		Open: func(dir string) (driver.Driver, error) {
			opts := opts
			opts.Dir, opts.Stderr = dir, os.Stderr
			return New(opts)
		},
		Spec: func() *driver.Spec {
			s := &driver.Spec{
				ID: sandbox.NewID(), Image: sandbox.ImageHost, Hostname: "box",
				Limits: sandbox.DefaultLimits(), Network: sandbox.NetworkNone,
			}
			change(s)
			return s
		},
		Groups:    groups,
		Leftovers: Leftovers,
		Processes: Processes,
		Python:    "python3",
	}
}
