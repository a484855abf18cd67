package docker

import (
	"context"
	"errors"

	"github.com/containerd/errdefs"

	"github.com/glovebox-dev/glovebox/internal/driver/container"
	"github.com/glovebox-dev/glovebox/internal/driver/docker/dockerapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A tunnel makes the second container of a box.
type tunnel struct {
	e     *dockerapi.Engine
	ref   string // the box
	image string // ID of the box's image
	can   container.Abilities
	// guestVolume returns the name of the volume with the guest's program.
	guestVolume func(ctx context.Context) (string, error)
}

var _ container.Tunnel = (*tunnel)(nil)

// Start implements [container.Tunnel].
func (t *tunnel) Start(ctx context.Context) (container.Streams, error) {
	volume, err := t.guestVolume(ctx)
	if err != nil {
		return nil, err
	}
	plan := container.TunnelPlan(t.ref, t.can)
	call, cancel := dockerapi.Steady(ctx)
	defer cancel()
	if _, err := t.e.ContainerCreate(call, orderOf(t.e, plan, materials{image: t.image, guest: volume})); err != nil {
		return nil, t.Explain(err)
	}
	streams, err := t.e.StartAttached(call, plan.Name)
	if err != nil {
		return nil, errors.Join(t.Explain(err), t.Remove(ctx))
	}
	return streams, nil
}

// Explain implements [container.Tunnel].
func (t *tunnel) Explain(err error) error {
	if errdefs.IsConflict(err) {
		return t.e.Explain(err)
	}
	return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "%s cannot give a sandbox a network: %w", t.e.Name, t.e.Explain(err)),
		"the engine's machine needs /dev/net/tun (modprobe tun), and the engine must be allowed to hand it to a container; or leave the network out")
}

// Remove implements [container.Tunnel].
func (t *tunnel) Remove(ctx context.Context) error {
	return t.e.Remove(ctx, container.TunnelName(t.ref))
}
