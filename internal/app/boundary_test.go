package app

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A stubDriver says what it is, and works or not.
type stubDriver struct {
	driver.Driver
	info   driver.Info
	probe  error
	closed *int
}

func (s stubDriver) Info() driver.Info           { return s.info }
func (s stubDriver) Probe(context.Context) error { return s.probe }
func (s stubDriver) Close() error                { *s.closed++; return nil }

func TestBoundary(t *testing.T) {
	broken := sandbox.WithHint(errors.New("no user\nnamespaces"), "sysctl x=1")
	for name, test := range map[string]struct {
		probe           map[string]error
		driver, require string
		looks           bool

		want, fallback string
		err, hint      string
	}{
		"the embedded one works": {want: "gvisor"},
		"it does not":            {probe: map[string]error{"gvisor": broken}, want: "docker", fallback: "gvisor: no user namespaces"},
		"nor does the first engine": {
			probe: map[string]error{"gvisor": broken, "docker": errors.New("no socket")},
			want:  "podman", fallback: "gvisor: no user namespaces",
		},
		"nothing works": {
			probe: map[string]error{"gvisor": broken, "docker": broken, "podman": broken}, want: "gvisor",
		},
		"an engine is asked for":                 {driver: "docker", want: "docker"},
		"a kernel is required, and there is one": {require: config.IsolationKernel, want: "gvisor"},
		"a kernel is required, and the embedded one does not work": {
			require: config.IsolationKernel, probe: map[string]error{"gvisor": broken},
			err: "no driver here gives them one: gvisor: no user namespaces", hint: "sysctl x=1",
		},
		"a kernel is required, and an engine asked for": {
			require: config.IsolationKernel, driver: "podman",
			err: "podman has a boundary of another kind: shared kernel (container)", hint: "--require-isolation any",
		},
		"a kernel is required, and a virtual machine has one": {require: config.IsolationKernel, driver: "e2b", want: "e2b"},
		"a kernel is required, but nothing is made":           {require: config.IsolationKernel, driver: "podman", looks: true, want: "podman"},
	} {
		t.Run(name, func(t *testing.T) {
			closed, made := 0, 0
			opts := Options{
				Config:   config.Config{Driver: config.DriverAuto, RequireIsolation: config.IsolationAny},
				TestAuto: []string{"gvisor", "docker", "podman"}, TestDrivers: map[string]Maker{}, Looks: test.looks,
			}
			if test.driver != "" {
				opts.Config.Driver = test.driver
			}
			if test.require != "" {
				opts.Config.RequireIsolation = test.require
			}
			for name, boundary := range map[string]sandbox.Boundary{
				"gvisor": sandbox.BoundaryKernel, "docker": sandbox.BoundaryContainer, "podman": sandbox.BoundaryContainer, "e2b": sandbox.BoundaryMachine,
			} {
				opts.TestDrivers[name] = func(DriverOptions) (driver.Driver, error) {
					made++
					return stubDriver{info: driver.Info{Name: name, Boundary: boundary}, probe: test.probe[name], closed: &closed}, nil
				}
			}
			choice, err := opts.makeDriver(t.Context(), DriverOptions{Log: slog.New(slog.DiscardHandler)})
			if test.err != "" {
				if sandbox.KindOf(err) != sandbox.Unsupported || !strings.Contains(err.Error(), test.err) || !strings.Contains(sandbox.HintOf(err), test.hint) {
					t.Fatalf("error %v (kind %s, hint %q), want %q of kind unsupported, and %q", err, sandbox.KindOf(err), sandbox.HintOf(err), test.err, test.hint)
				}
				if closed != made {
					t.Errorf("%d drivers were made and %d closed", made, closed)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := choice.Driver.Info().Name; got != test.want || choice.Fallback != test.fallback {
				t.Errorf("driver %s, fallback %q; want %s and %q", got, choice.Fallback, test.want, test.fallback)
			}
			if closed != made-1 {
				t.Errorf("%d drivers were made and %d closed; want one to be left", made, closed)
			}
		})
	}
}
