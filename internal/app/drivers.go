package app

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/auto"
	"github.com/glovebox-dev/glovebox/internal/driver/docker"
	"github.com/glovebox-dev/glovebox/internal/driver/e2b"
	"github.com/glovebox-dev/glovebox/internal/driver/kubernetes"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

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
	all[kubernetes.Name] = func(o DriverOptions) (driver.Driver, error) {
		d, err := kubernetes.New(kubernetesOptions(o.Kubernetes, o.StateDir, o.Log))
		if err != nil {
			return nil, err
		}
		return d, nil
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

func kubernetesOptions(c config.Kubernetes, stateDir string, log *slog.Logger) kubernetes.Options {
	return kubernetes.Options{
		Kubeconfig: c.Kubeconfig, Context: c.Context, Namespace: c.Namespace,
		RuntimeClass: c.RuntimeClass, AllowContainer: c.AllowContainerBoundary,
		GuestImage: c.GuestImage, PullSecrets: c.PullSecrets, WorkspaceClaim: c.WorkspaceClaim, Direct: c.Transport == config.TransportDirect,
		StartTimeout: time.Duration(c.StartTimeout),
		Network:      networkProgram(), StateDir: stateDir, Log: log,
	}
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

// makeDriver makes the configured driver; see [auto.Choose].
func (o Options) makeDriver(ctx context.Context, with DriverOptions) (auto.Choice, error) {
	names, known, err := o.candidates(o.Config.Driver)
	if err != nil {
		return auto.Choice{}, err
	}
	choose := auto.Options{
		RequireKernel: o.Config.RequireIsolation == config.IsolationKernel && !o.Passive && !o.Looks,
		Log:           with.Log,
	}
	for _, name := range names {
		choose.Candidates = append(choose.Candidates, auto.Candidate{
			Name:     name,
			Make:     func() (driver.Driver, error) { return known[name](with) },
			Unprobed: o.Passive && slices.Contains(embedded(), name), // a passive caller should not wait
		})
	}
	return auto.Choose(ctx, choose)
}

// Fallback returns one line that says that "auto" took a driver without a kernel
// of its own, and why. It returns "" if "auto" did not.
func (s *System) Fallback() string { return s.choice.Notice() }

// checkBoundary reports the boundary of sandboxes here.
func (s *System) checkBoundary() Check {
	if line := s.Fallback(); line != "" {
		return Check{Name: "boundary", Status: CheckWarning, Detail: line}
	}
	return Check{Name: "boundary", Status: CheckOK, Detail: string(s.driver.Info().Boundary)}
}
