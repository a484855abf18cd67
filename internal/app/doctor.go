package app

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/driver/docker"
	"github.com/glovebox-dev/glovebox/internal/driver/kubernetes"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Doctor checks the requirements of sandboxes on this machine, with the given
// options, and tries one sandbox. It leaves nothing behind except the state
// directory.
func Doctor(ctx context.Context, opts Options) []Check {
	checks := []Check{checkStateDir(opts.Config.StateDir)}
	names, _, err := opts.candidates(opts.Config.Driver)
	if err != nil {
		return append(checks, failed("driver", err))
	}
	for _, name := range names {
		var of []Check
		switch {
		case slices.Contains(embedded(), name):
			of = embeddedChecks()
		case name == docker.Docker || name == docker.Podman:
			of = engineChecks(ctx, name, opts.Config)
		case name == kubernetes.Name:
			of = clusterChecks(ctx, opts.Config, opts.ProbeNetwork)
		}
		checks = append(checks, of...)
		if len(names) > 1 && len(of) > 0 && Works(of) {
			break // "auto" uses the first that works
		}
	}
	if len(names) > 1 {
		checks = softened(checks)
	}
	return append(checks, try(ctx, opts)...)
}

// softened turns failures into warnings, for checks of several drivers of which
// one suffices. The trial sandbox shows whether one works.
func softened(checks []Check) []Check {
	for i := range checks {
		if checks[i].Status == CheckFailed {
			checks[i].Status = CheckWarning
		}
	}
	return checks
}

// engineChecks returns the checks of a container engine.
func engineChecks(ctx context.Context, name string, c config.Config) []Check {
	var checks []Check
	found := docker.Doctor(ctx, docker.Options{Engine: name, Host: c.Docker.Host, Runtime: c.Docker.Runtime})
	for _, f := range found {
		status := CheckOK
		switch {
		case f.Fatal:
			status = CheckFailed
		case !f.OK:
			status = CheckWarning
		case f.Note:
			status = CheckNote
		}
		checks = append(checks, Check{Name: f.Name, Status: status, Detail: f.Detail, Fix: f.Fix})
	}
	return checks
}

// clusterChecks returns the checks of a cluster.
func clusterChecks(ctx context.Context, c config.Config, probe bool) []Check {
	var checks []Check
	for _, f := range kubernetes.Doctor(ctx, kubernetesOptions(c.Kubernetes, c.StateDir, nil), probe) {
		status := CheckOK
		switch {
		case f.Fatal:
			status = CheckFailed
		case !f.OK:
			status = CheckWarning
		}
		checks = append(checks, Check{Name: f.Name, Status: status, Detail: f.Detail, Fix: f.Fix, Manifest: f.Manifest})
	}
	return checks
}

func checkStateDir(dir string) Check {
	c := Check{Name: "state directory", Status: CheckOK, Detail: dir}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return failed(c.Name, sandbox.WithHint(err, "name another with --state-dir or GLOVEBOX_STATE_DIR"))
	}
	f, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return failed(c.Name, sandbox.WithHint(err, "make it writable, or name another with --state-dir"))
	}
	f.Close()
	os.Remove(f.Name())
	return c
}

// try makes a sandbox, runs a program in it, and checks its receipt.
func try(ctx context.Context, opts Options) (checks []Check) {
	sys, err := Open(ctx, opts)
	if err != nil {
		return []Check{failed("start", err)}
	}
	defer func() {
		if err := sys.Close(context.WithoutCancel(ctx)); err != nil {
			checks = append(checks, failed("end", err))
		}
	}()
	if err := sys.driver.Probe(ctx); err != nil {
		return []Check{failed("driver "+sys.DriverName(), err)}
	}
	checks = append(checks, Check{Name: "driver " + sys.DriverName(), Status: CheckOK, Detail: "usable here"})
	checks = append(checks, sys.checkBoundary())
	checks = append(checks, checkLeftovers(ctx, sys.driver)...)
	checks = append(checks, sys.checkWaiting(ctx)...)
	checks = append(checks, sys.checkSaved(ctx)...)
	checks = append(checks, sys.checkSnapshots(ctx)...)
	checks = append(checks, sys.checkCallers(ctx)...)
	checks = append(checks, sys.checkPool(ctx))

	started := time.Now()
	box, err := sys.Engine.Create(ctx, sandbox.Local, sandbox.CreateRequest{})
	if err != nil {
		return append(checks, failed("a sandbox", err))
	}
	made := time.Since(started)
	defer func() {
		if err := sys.Engine.Stop(context.WithoutCancel(ctx), sandbox.Local, box.ID); err != nil {
			checks = append(checks, failed("stop the sandbox", err))
		}
	}()
	run, err := sys.Engine.Start(ctx, sandbox.Local, sandbox.RunRequest{SandboxID: box.ID, Argv: []string{"/bin/sh", "-c", "exit 42"}})
	if err == nil {
		run, err = sys.Engine.Wait(ctx, sandbox.Local, run.ID)
	}
	switch {
	case err != nil:
		return append(checks, failed("a program in a sandbox", err))
	case run.ExitCode == nil || *run.ExitCode != 42:
		return append(checks, Check{
			Name: "a program in a sandbox", Status: CheckFailed,
			Detail: fmt.Sprintf("it ended with %s (%s)", run.Verdict.Code, run.Verdict.Cause), Fix: run.Verdict.NextStep,
		})
	}
	checks = append(checks, Check{
		Name: "a program in a sandbox", Status: CheckOK,
		Detail: fmt.Sprintf("made in %d ms, ran in %d ms", made.Milliseconds(), run.Ended.Sub(run.Started).Milliseconds()),
	})
	return append(checks, checkReceipt(box.Receipt))
}

func checkReceipt(r sandbox.Receipt) Check {
	c := Check{Name: "limits", Status: CheckOK, Detail: "all are enforced, and were read back"}
	var weak []string
	for _, name := range r.Unenforced() {
		weak = append(weak, string(name))
	}
	if m := r.Control(sandbox.ControlMemory); strings.HasPrefix(m.Mechanism, "watched") {
		c.Status = CheckNote
		c.Detail = "enforced, and read back; Glovebox itself watches the memory, which the kernel does not limit here"
	}
	if len(weak) > 0 {
		c.Status = CheckWarning
		c.Detail = "not enforced, as the configuration allows: " + strings.Join(weak, ", ")
		c.Fix = "leave them out of --allow-unenforced to have such sandboxes refused"
	}
	return c
}
