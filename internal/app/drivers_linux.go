//go:build !nogvisor

package app

import (
	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// makers returns the drivers of this build.
func makers() map[string]Maker {
	return map[string]Maker{
		"gvisor": func(o DriverOptions) (driver.Driver, error) {
			d, err := gvisor.New(gvisor.Options{StateDir: o.StateDir, Guest: o.Guest, Log: o.Log})
			if err != nil {
				return nil, err
			}
			return d, nil
		},
	}
}

// autoOrder names the drivers that "auto" stands for, the best first.
func autoOrder() []string { return []string{"gvisor"} }

func noDriver() error {
	return sandbox.Errorf(sandbox.Unsupported, "this program has no driver")
}

// driverChecks are what a driver knows about its needs.
func driverChecks(name string) []Check {
	if name != "gvisor" {
		return nil
	}
	var checks []Check
	for _, c := range gvisor.Doctor() {
		status := CheckOK
		switch {
		case c.Fatal:
			status = CheckFailed
		case !c.OK:
			status = CheckWarning
		}
		checks = append(checks, Check{Name: c.Name, Status: status, Detail: c.Detail, Fix: c.Fix})
	}
	return checks
}
