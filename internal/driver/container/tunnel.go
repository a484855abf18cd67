package container

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver/container/link"
)

// A Tunnel starts and ends the tunnel of one box. It is a second container, whose
// plan is [TunnelPlan], or part of a guest that leaves the platform's network.
type Tunnel interface {
	// Start starts the tunnel. It returns its streams, on which no data was sent
	// yet, and the caller closes them. If it fails, it leaves nothing.
	Start(ctx context.Context) (Streams, error)
	// Explain returns the error for a tunnel that was started and does not work.
	Explain(err error) error
	// Remove removes the tunnel. It does nothing if there is none.
	Remove(ctx context.Context) error
}

const (
	// linkName is the name of the interface.
	linkName = "eth0"
	// tunnelTime bounds how long the tunnel may take to become ready.
	tunnelTime = 20 * time.Second
)

// TunnelName returns the name of the tunnel of the box ref.
func TunnelName(ref string) string { return ref + "-network" }

// startTunnel starts the tunnel, and returns its streams when it is ready. The
// caller closes them. If it fails, it leaves nothing.
func startTunnel(ctx context.Context, t Tunnel) (_ Streams, err error) {
	streams, err := t.Start(ctx)
	if err != nil {
		return nil, err
	}
	if err := awaitTunnel(ctx, streams); err != nil {
		streams.Close()
		return nil, errors.Join(t.Explain(err), t.Remove(ctx))
	}
	return streams, streams.SetReadDeadline(time.Time{})
}

// awaitTunnel returns when the tunnel is ready.
func awaitTunnel(ctx context.Context, streams Streams) error {
	// The tunnel writes nothing before it has received something.
	if _, err := streams.Write([]byte{0, 0}); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = streams.SetReadDeadline(time.Unix(1, 0)) })
	_ = streams.SetReadDeadline(time.Now().Add(tunnelTime))
	packet, err := link.ReadPacket(streams, make([]byte, link.MaxPacket))
	if err == nil && len(packet) > 0 {
		err = errors.New("it begins with a packet")
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%w: %q", err, streams.Stderr())
	}
	return nil
}
