package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/container"
	"github.com/glovebox-dev/glovebox/internal/driver/container/lease"
	"github.com/glovebox-dev/glovebox/internal/driver/kubernetes/podstate"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// abilities are what a Pod can have limited. The kubelet may limit its processes, but
// neither the Pod nor its status shows whether it does.
var abilities = container.Abilities{CPU: true, Memory: true, CPUs: math.MaxInt32}

// check refuses a spec that the driver cannot fulfil, before anything is started.
func (d *Driver) check(spec *driver.Spec) error {
	if err := d.opts.check(); err != nil {
		return err
	}
	for _, m := range append(spec.Mounts[:len(spec.Mounts):len(spec.Mounts)], driver.Mount{Dir: spec.Workspace}) {
		if m.Dir != "" && (d.opts.WorkspaceClaim == "" || !container.InVolume(m.Dir)) {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "workspace: a Pod does not have the directories of the server"), "leave it out: the server copies workspaces")
		}
	}
	if err := container.CheckSpec(spec); err != nil {
		return err
	}
	if spec.Network != sandbox.NetworkNone {
		if err := d.opts.canNetwork(); err != nil {
			return err
		}
	}
	if spec.Image == sandbox.ImageHost {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "image %q: a Pod needs an image of a registry", spec.Image), "name an image, such as python:3-slim")
	}
	if name := abilities.Lacking(spec); name != "" {
		return cannot(name, "a Pod has no such limit")
	}
	return nil
}

// canNetwork returns why boxes cannot have a network, as far as is known before they
// are made.
func (o *Options) canNetwork() error {
	if !container.CanNetwork(o.Network) {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "network: this driver has no network but %q here", sandbox.NetworkNone),
			"leave the network out, or run the server on Linux")
	}
	if o.RuntimeClass == "" {
		return (&tunnel{}).Explain(errNoClass)
	}
	return nil
}

// errNoClass is why a Pod without a runtime class has no network of its own.
var errNoClass = errors.New("the system call filter of runc permits no network namespace")

// cannot returns the error for a limit that the cluster cannot enforce.
func cannot(name sandbox.ControlName, why string) error {
	hint := cmp.Or(map[sandbox.ControlName]string{
		sandbox.ControlProcesses: "set podPidsLimit in the kubelets' configuration",
		sandbox.ControlNetwork:   "use a runtime class with a kernel of its own, or a NetworkPolicy for Pods with the label " + LabelNetwork + "=none",
	}[name], "see that the runtime class and the nodes enforce it")
	return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "the cluster cannot enforce the limit of %s: %s", name, why),
		"%s; and allow it by name: --allow-unenforced %s", hint, name)
}

// create makes a box. If it fails, it leaves nothing.
func (d *Driver) create(ctx context.Context, spec *driver.Spec) (*container.Box, error) {
	a, err := d.conn.open()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(d.check(spec), ctx.Err()); err != nil {
		return nil, err
	}
	return d.launch(ctx, a, &container.Record{Spec: *spec, Disk: container.DiskMemory, OneUser: true, Lease: lease.NewGrant(spec, d.opts.Hold)})
}

// launch makes a box, or a server of workspaces. If it fails, it leaves nothing.
func (d *Driver) launch(ctx context.Context, a *api, rec *container.Record) (_ *container.Box, err error) {
	spec := &rec.Spec
	plan, err := container.NewPlan(d.state, rec, abilities, nil)
	if err != nil {
		return nil, err
	}
	p := d.platform(a)
	if _, err := a.create(ctx, podOf(&d.opts, plan, spec.Image, !spec.Detached), false); err != nil {
		if apierrors.ReasonForError(err) == "" || isTransient(err) {
			// The answer was lost, so the Pod may exist.
			err = errors.Join(explainIn(ctx, err), p.Remove(ctx, spec.ID))
			return nil, err
		}
		return nil, explainIn(ctx, err)
	}
	b := d.boxes.Add(p, rec)
	defer func() {
		if err != nil {
			b.Release()
			err = errors.Join(err, p.Remove(ctx, spec.ID))
		}
	}()
	if err := d.await(ctx, a, spec.ID); err != nil {
		return nil, err
	}
	if !spec.Detached {
		if err := d.hold(ctx, a, b); err != nil {
			return nil, err
		}
	}
	streams, err := p.relay(ctx, spec.ID, guestapi.DirectGuest)
	if driver.IsGone(err) {
		return nil, d.whyEnded(ctx, a, spec.ID, err)
	}
	if err != nil {
		return nil, err
	}
	receipt, err := b.Begin(ctx, streams, d.tunnel(p, spec.ID))
	if errors.Is(err, container.ErrNoTunnel) {
		return nil, err // the box lives
	}
	if errors.Is(err, container.ErrForeignUsers) {
		return nil, sandbox.WithHint(err, "use storage for kubernetes.workspace_claim that keeps the owners of files")
	}
	if err != nil {
		err = d.whyEnded(ctx, a, spec.ID, err)
		if errors.Is(err, container.ErrStartFailed) && sandbox.HintOf(err) == "" {
			err = sandbox.WithHint(err, "see that kubernetes.guest_image is the image of this version, and for the nodes' architecture")
		}
		return nil, err
	}
	for _, name := range receipt.Unenforced() {
		if rec.Workspaces == "" && !container.MayLack(spec, name) {
			c := receipt.Control(name)
			return nil, cannot(name, fmt.Sprintf("asked for %s, found %q", c.Asked, c.Value))
		}
	}
	return b, nil
}

// await waits until the box of a Pod runs. The caller may give it less time than the
// configuration does.
func (d *Driver) await(ctx context.Context, a *api, ref string) error {
	id, err := d.state.ID()
	if err != nil {
		return err
	}
	return a.await(ctx, id, podName(ref), d.opts.StartTimeout, podstate.Started)
}

// await waits until check is satisfied with a Pod that starts. The error of a Pod for
// which limit is not enough says why, as far as the cluster does.
func (a *api) await(ctx context.Context, id, name string, limit time.Duration, check func(*corev1.Pod) (bool, error)) error {
	wait, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	var last *corev1.Pod
	err := a.watch.until(wait, id, name, func(pod *corev1.Pod) (bool, error) {
		last = pod
		return check(pod)
	})
	if errors.Is(err, context.DeadlineExceeded) {
		warning := a.lastWarning(context.WithoutCancel(ctx), name)
		return errors.Join(ctx.Err(), podstate.PendingError(last, warning, time.Since(began).Round(time.Second)))
	}
	return err
}

// whyEnded returns the reason for which a box has ended that had just started, or err
// if it has not ended.
func (d *Driver) whyEnded(ctx context.Context, a *api, ref string, err error) error {
	if ctx.Err() != nil {
		return errors.Join(ctx.Err(), err)
	}
	if s, serr := d.platform(a).AwaitEnd(ctx, ref); serr != nil || s.Running {
		return err
	}
	pod, perr := a.pod(ctx, podName(ref))
	if perr != nil {
		return err
	}
	if _, why := podstate.Started(pod); why != nil {
		return errors.Join(why, err)
	}
	return err
}

// holdEvery is how often a holder sends a byte. Kubelets end streams that are silent
// for hours.
const holdEvery = 5 * time.Minute

// hold opens the standard input of the guest of an attached box, whose end ends it.
func (d *Driver) hold(ctx context.Context, a *api, b *container.Box) error {
	s, err := a.attach(ctx, podName(b.Ref()))
	if err != nil {
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
		return d.whyEnded(ctx, a, b.Ref(), sandbox.Errorf(sandbox.Unavailable, "hold the box: %w", explain(err)))
	}
	b.Hold(s)
	if _, err := s.Write([]byte{0}); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "hold the box: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, s) // until the box ends
	}()
	go func() {
		every := time.NewTicker(holdEvery)
		defer every.Stop()
		for {
			select {
			case <-every.C:
				_, _ = s.Write([]byte{0}) // the reader notices the end
			case <-ended:
				return
			}
		}
	}()
	return nil
}
