package dockerapi

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// callTime bounds a call to the container engine that does not end with the caller's context.
const callTime = time.Minute

// Steady returns a context that outlives ctx, for at most callTime. If the call
// were cancelled, the container engine would complete it anyway, and its result would leak.
func Steady(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), callTime)
}

// Remove removes a container and returns when nothing of it is left. Another
// process may remove it at the same time.
func (e *Engine) Remove(ctx context.Context, name string) error {
	ctx, cancel := Steady(ctx)
	defer cancel()
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		_, err := e.ContainerRemove(ctx, name, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		if errdefs.IsNotFound(err) {
			return nil
		}
		if err == nil {
			// Podman answers before the removal has ended if another call has begun
			// it.
			if _, err = e.ContainerInspect(ctx, name, client.ContainerInspectOptions{}); errdefs.IsNotFound(err) {
				return nil
			}
		} else if !errdefs.IsConflict(err) && !retried(err) {
			return e.Explain(err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return sandbox.Errorf(sandbox.Unavailable, "%s does not remove %s: %w", e.Name, name, errors.Join(err, ctx.Err()))
		}
	}
}

// retried reports whether a removal failed for a temporary reason: a container that
// is just starting or ending still holds its files.
func retried(err error) bool {
	for _, text := range []string{"is already in progress", "device or resource busy", "did not receive an exit event", "could not be stopped", "cannot remove container"} {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}
