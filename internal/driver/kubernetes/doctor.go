package kubernetes

import (
	"context"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/container"
	"github.com/glovebox-dev/glovebox/internal/driver/kubernetes/doctor"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Check is one fact about a cluster that affects its boxes.
type Check = doctor.Check

// Doctor checks the cluster that a driver with these options would use. It changes
// nothing.
func Doctor(ctx context.Context, opts Options) []Check {
	a, err := connect(&opts)
	if err != nil {
		return []Check{doctor.Failed("cluster", err)}
	}
	defer a.close()
	checks := doctor.Run(ctx, &doctor.Cluster{
		Host: a.config.Host, Namespace: a.namespace, RuntimeClass: opts.RuntimeClass, Configuration: opts.check(),
		Labels: map[string]string{labelManager: manager, LabelNetwork: string(sandbox.NetworkNone)},
		Object: a.object, Ask: a.ask, Explain: explainIn,
		Try: func(ctx context.Context) (time.Time, error) { return a.try(ctx, &opts) },
	})
	if len(checks) == 1 { // the cluster does not answer
		return checks
	}
	return append(checks, checkNetwork(&opts))
}

// checkNetwork reports whether sandboxes can have a network, as far as is known before
// they are made.
func checkNetwork(opts *Options) Check {
	if err := opts.canNetwork(); err != nil {
		return Check{Name: "network", Detail: "sandboxes can have none: " + err.Error(), Fix: sandbox.HintOf(err)}
	}
	return Check{
		Name: "network", OK: true,
		Detail: "sandboxes can have one if the runtime class has gVisor's network stack; others are refused with the reason",
	}
}

// try has the API server check the Pod of a sandbox. The result is the server's time.
func (a *api) try(ctx context.Context, opts *Options) (time.Time, error) {
	spec := driver.Spec{ID: sandbox.NewID(), Image: opts.GuestImage, Hostname: "sandbox", Limits: sandbox.DefaultLimits(), Network: sandbox.NetworkNone,
		AllowUnenforced: []sandbox.ControlName{sandbox.ControlProcesses}}
	state := container.NewStateDir(opts.StateDir, Name)
	plan, err := container.NewPlan(state, &container.Record{Spec: spec, Disk: container.DiskMemory, OneUser: true}, abilities, nil)
	if err != nil {
		return time.Time{}, err
	}
	pod, err := a.create(ctx, podOf(opts, plan, spec.Image, true), true)
	return pod.CreationTimestamp.Time, err
}
