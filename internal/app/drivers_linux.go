//go:build !nogvisor

package app

import (
	"os"
	"path/filepath"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor"
	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/network"
)

// embedded returns the drivers that need no other software on this machine.
func embedded() []string { return []string{"gvisor"} }

// embeddedMakers returns the makers of those drivers.
func embeddedMakers() map[string]Maker {
	return map[string]Maker{
		"gvisor": func(o DriverOptions) (driver.Driver, error) {
			images, err := imageStore(o)
			if err != nil {
				return nil, err
			}
			d, err := gvisor.New(gvisor.Options{
				StateDir: o.StateDir, Guest: o.Guest, Images: images, StateKey: o.StateKey, Encrypt: o.Encrypt, Log: o.Log,
			})
			if err != nil {
				return nil, err
			}
			return d, nil
		},
	}
}

// networkProgram returns the path of the program that runs the networks of
// drivers without a network of their own: this program; see the roles in cmd/glovebox.
func networkProgram() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	return path
}

// imageStore returns the image store of a driver without a container engine.
func imageStore(o DriverOptions) (*image.Store, error) {
	return image.New(image.Options{
		Dir:        filepath.Join(o.StateDir, "images"),
		Limits:     image.Limits{Files: o.Images.MaxFiles, Bytes: int64(o.Images.MaxSize)},
		MaxBytes:   int64(o.Images.Space),
		Registries: o.Images.Registries,
		Mirrors:    o.Images.Mirrors,
		Public:     network.Public,
		Log:        o.Log,
	})
}

// embeddedChecks returns the embedded drivers' checks of this machine.
func embeddedChecks() []Check {
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
