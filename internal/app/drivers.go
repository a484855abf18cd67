package app

import (
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Maker makes a driver. It does no work yet that could fail for reasons of
// this machine: those are for the driver's Probe.
type Maker func(DriverOptions) (driver.Driver, error)

// DriverOptions are what a driver is made with.
type DriverOptions struct {
	StateDir string // absolute, and there
	Guest    string // path of the guest's program
	Images   config.Images
	Log      *slog.Logger
}

// DriverNames returns the drivers of this build, the preferred one first.
func DriverNames() []string { return autoOrder() }

// maker returns the maker of the driver that name stands for, and its name.
func (o Options) maker(name string) (string, Maker, error) {
	known := makers()
	maps.Copy(known, o.TestDrivers)
	if name == config.DriverAuto {
		if order := autoOrder(); len(order) > 0 {
			// With one candidate there is nothing to try: if it does not
			// work here, its own error says why.
			return order[0], known[order[0]], nil
		}
		return "", nil, noDriver()
	}
	if m, ok := known[name]; ok {
		return name, m, nil
	}
	if len(known) == 0 {
		return "", nil, noDriver()
	}
	return "", nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "there is no driver %q in this program", name),
		"the drivers are: %s", strings.Join(append([]string{config.DriverAuto}, slices.Sorted(maps.Keys(known))...), ", "))
}
