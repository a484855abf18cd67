//go:build !nogvisor

package app

import (
	"path/filepath"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor"
	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// makers returns the drivers of this build.
func makers() map[string]Maker {
	return map[string]Maker{
		"gvisor": func(o DriverOptions) (driver.Driver, error) {
			images, err := imageStore(o)
			if err != nil {
				return nil, err
			}
			d, err := gvisor.New(gvisor.Options{StateDir: o.StateDir, Guest: o.Guest, Images: images, Log: o.Log})
			if err != nil {
				return nil, err
			}
			return d, nil
		},
	}
}

// imageStore returns the store of a driver that has no engine to keep images.
func imageStore(o DriverOptions) (*image.Store, error) {
	return image.New(image.Options{
		Dir:        filepath.Join(o.StateDir, "images"),
		Limits:     image.Limits{Files: o.Images.MaxFiles, Bytes: int64(o.Images.MaxSize)},
		MaxBytes:   int64(o.Images.Space),
		Registries: o.Images.Registries,
		Mirrors:    o.Images.Mirrors,
		Log:        o.Log,
	})
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
