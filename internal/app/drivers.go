package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/docker"
	"github.com/glovebox-dev/glovebox/internal/driver/e2b"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Maker makes a driver. It does no work that can fail because of this machine:
// the driver's Probe does that.
type Maker func(DriverOptions) (driver.Driver, error)

// DriverOptions are the parameters of a driver.
type DriverOptions struct {
	StateDir string // absolute path of an existing directory
	Guest    string // path of the guest's program
	Images   config.Images
	Docker   config.Docker
	E2B      config.E2B
	Log      *slog.Logger
}

// DriverNames returns the drivers of this build, in the order in which "auto"
// tries them.
func DriverNames() []string { return autoOrder() }

// autoOrder returns the drivers that "auto" tries, the best first: the embedded
// driver if the build has one, then the container engines. Drivers that cost
// money are not among them: the configuration must name them.
func autoOrder() []string { return append(embedded(), docker.Docker, docker.Podman) }

// makers returns the drivers of this build.
func makers() map[string]Maker {
	all := map[string]Maker{}
	for _, name := range []string{docker.Docker, docker.Podman} {
		all[name] = func(o DriverOptions) (driver.Driver, error) {
			d, err := docker.New(docker.Options{
				Engine: name, Host: o.Docker.Host, Runtime: o.Docker.Runtime,
				StateDir: o.StateDir, Guest: o.Guest, Network: networkProgram(), Log: o.Log,
				Inside: o.Docker.Inside, Outside: o.Docker.Outside, Workspaces: o.Docker.Workspaces,
				Registries: o.Images.Registries,
			})
			if err != nil {
				return nil, err
			}
			return d, nil
		}
	}
	all["e2b"] = func(o DriverOptions) (driver.Driver, error) {
		d, err := e2b.New(e2b.Options{
			StateDir: o.StateDir, Log: o.Log,
			Key: o.E2B.Key, Domain: o.E2B.Domain, APIURL: o.E2B.APIURL, SandboxURL: o.E2B.SandboxURL,
		})
		if err != nil {
			return nil, err
		}
		return d, nil
	}
	maps.Copy(all, embeddedMakers())
	return all
}

// candidates returns the drivers that name stands for, in the order to try them,
// and the makers by name.
func (o Options) candidates(name string) ([]string, map[string]Maker, error) {
	known := makers()
	maps.Copy(known, o.TestDrivers)
	if name == config.DriverAuto {
		if len(o.TestAuto) > 0 {
			return o.TestAuto, known, nil
		}
		return autoOrder(), known, nil
	}
	if _, ok := known[name]; ok {
		return []string{name}, known, nil
	}
	return nil, nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "there is no driver %q in this program", name),
		"the drivers are: %s", strings.Join(append([]string{config.DriverAuto}, slices.Sorted(maps.Keys(known))...), ", "))
}

// makeDriver makes the configured driver. With several candidates, it takes the
// first that works here. If none works, it returns the first candidate, so that
// the driver's own error explains why. If "auto" took a driver without a kernel
// of its own, fallback is the reason. The error is of kind Unsupported if the
// configuration requires a kernel and no usable driver has one.
func (o Options) makeDriver(ctx context.Context, with DriverOptions) (_ driver.Driver, fallback string, err error) {
	names, known, err := o.candidates(o.Config.Driver)
	if err != nil {
		return nil, "", err
	}
	tried := &attempts{}
	var first driver.Driver
	defer func() {
		if err != nil && first != nil {
			err = errors.Join(err, first.Close())
		}
	}()
	for _, name := range names {
		d, err := known[name](with)
		if err != nil {
			return nil, "", fmt.Errorf("make driver %s: %w", name, err)
		}
		boundary := d.Info().Boundary
		if o.Config.RequireIsolation == config.IsolationKernel && !o.Passive && !o.Looks && !boundary.OwnKernel() {
			tried.weak = append(tried.weak, fmt.Sprintf("%s has a boundary of another kind: %s", name, boundary))
			if err := d.Close(); err != nil {
				return nil, "", err
			}
			continue
		}
		// A passive caller should not wait for the probe.
		if len(names) == 1 || o.Passive && slices.Contains(embedded(), name) {
			return d, "", nil
		}
		err = d.Probe(ctx)
		if err == nil {
			if !boundary.OwnKernel() {
				fallback = tried.reason()
			}
			if first != nil {
				err = first.Close()
			}
			first = nil
			return d, fallback, err
		}
		with.Log.Info("driver not used", "driver", name, "error", err)
		tried.failed(name, boundary, err)
		if first == nil {
			first = d
		} else if err := d.Close(); err != nil {
			return nil, "", err
		}
	}
	if len(tried.weak) > 0 {
		return nil, "", tried.refusal()
	}
	return first, "", nil
}
