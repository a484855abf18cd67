package kubernetes

import (
	"context"
	"errors"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/container"
	"github.com/glovebox-dev/glovebox/internal/driver/container/stdio"
	"github.com/glovebox-dev/glovebox/internal/driver/kubernetes/podstate"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A tunnel connects to the packets of a box. The guest made the interface, and a
// process above it, in the same container, carries the packets.
type tunnel struct {
	platform *platform
	ref      string // the box
	class    string // its runtime class
}

var _ container.Tunnel = (*tunnel)(nil)

// Start implements [container.Tunnel].
func (t *tunnel) Start(ctx context.Context) (container.Streams, error) {
	s, err := t.open(ctx)
	if err != nil {
		return nil, err
	}
	return stdio.NewPackets(s, t.open, driver.IsGone), nil
}

func (t *tunnel) open(ctx context.Context) (stdio.Streams, error) {
	return t.platform.relay(ctx, t.ref, guestapi.DirectPackets)
}

// Explain implements [container.Tunnel].
func (t *tunnel) Explain(err error) error {
	if driver.IsGone(err) || errors.Is(err, context.Canceled) {
		return err
	}
	if !errors.Is(err, container.ErrNoTunnel) && !errors.Is(err, errNoClass) {
		return sandbox.WithHint(sandbox.WithRetryAfter(sandbox.Errorf(sandbox.Unavailable, "the network of the sandbox does not begin: %w", err), podstate.RetryTime),
			"try again; if it persists, see whether the API server lets connections live: kubectl exec")
	}
	class := "the runtime class " + t.class
	if t.class == "" {
		class = "the nodes' default runtime"
	}
	return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "%s cannot give a sandbox a network: %w", class, err),
		"use a runtime class of gVisor, which permits a network namespace and has /dev/net/tun; or leave the network out")
}

// Remove implements [container.Tunnel]. The next connection replaces the one before.
func (t *tunnel) Remove(context.Context) error { return nil }
