package kubernetes

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/container"
	"github.com/glovebox-dev/glovebox/internal/driver/kubernetes/direct"
	"github.com/glovebox-dev/glovebox/internal/driver/kubernetes/doctor"
	"github.com/glovebox-dev/glovebox/internal/driver/kubernetes/podstate"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Check is one fact about a cluster that affects its boxes.
type Check = doctor.Check

// Doctor checks the cluster that a driver with these options would use. With probe, it
// starts two Pods for some seconds; without, it changes nothing.
func Doctor(ctx context.Context, opts Options, probe bool) []Check {
	a, err := connect(&opts)
	if err != nil {
		return []Check{doctor.Failed("cluster", err)}
	}
	defer a.close()
	opts.StartTimeout = cmp.Or(opts.StartTimeout, DefaultStartTimeout)
	on := &doctor.Cluster{
		Host: a.config.Host, Namespace: a.namespace, RuntimeClass: opts.RuntimeClass, Claim: opts.WorkspaceClaim, Direct: opts.Direct, Configuration: opts.check(),
		Labels: map[string]string{labelManager: manager, LabelNetwork: string(sandbox.NetworkNone)},
		Object: a.object, Ask: a.ask, Dial: direct.Try, Explain: explainIn,
		Pod: func() (*corev1.Pod, error) { return samplePod(&opts) },
		Try: func(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) { return a.create(ctx, pod, true) },
	}
	if probe {
		on.Prober = &prober{api: a, opts: &opts}
	}
	checks := doctor.Run(ctx, on)
	if len(checks) == 1 { // the cluster does not answer
		return checks
	}
	return append(checks, doctor.Network(opts.canNetwork()))
}

// samplePod returns the Pod of a sandbox with the default limits and the guest's image.
func samplePod(opts *Options) (*corev1.Pod, error) {
	spec := driver.Spec{ID: sandbox.NewID(), Image: opts.GuestImage, Hostname: "sandbox", Limits: sandbox.DefaultLimits(), Network: sandbox.NetworkNone,
		AllowUnenforced: []sandbox.ControlName{sandbox.ControlProcesses}}
	state := container.NewStateDir(opts.StateDir, Name)
	plan, err := container.NewPlan(state, &container.Record{Spec: spec, Disk: container.DiskMemory, OneUser: true}, abilities, nil)
	if err != nil {
		return nil, err
	}
	return podOf(opts, plan, spec.Image, true), nil
}

// A prober runs the Pods with which the doctor tries the network.
type prober struct {
	api  *api
	opts *Options
}

var _ doctor.Prober = (*prober)(nil)

// Start implements [doctor.Prober].
func (p *prober) Start(ctx context.Context, pod *corev1.Pod, ready func(*corev1.Pod) bool) error {
	if _, err := p.api.create(ctx, pod, false); err != nil {
		return explainIn(ctx, err)
	}
	limit := min(p.opts.StartTimeout, doctor.MaxStart)
	return p.api.await(ctx, pod.Labels[container.LabelState], pod.Name, limit, func(pod *corev1.Pod) (bool, error) {
		if pod != nil && ready(pod) {
			return true, nil
		}
		_, err := podstate.Started(pod)
		return false, err
	})
}

// Remove implements [doctor.Prober].
func (p *prober) Remove(ctx context.Context, name string) error {
	return explain(p.api.discard(context.WithoutCancel(ctx), name))
}
