package dockerapi

import (
	"context"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// VolumePath returns the container engine's path of a volume. It makes the volume
// with these labels if there is none.
func (e *Engine) VolumePath(ctx context.Context, name string, labels map[string]string) (string, error) {
	v, err := e.VolumeInspect(ctx, name, client.VolumeInspectOptions{})
	if errdefs.IsNotFound(err) {
		if _, err := e.VolumeCreate(ctx, client.VolumeCreateOptions{Name: name, Labels: labels}); err != nil {
			return "", e.Explain(err)
		}
		v, err = e.VolumeInspect(ctx, name, client.VolumeInspectOptions{})
	}
	if err != nil {
		return "", e.Explain(err)
	}
	return v.Volume.Mountpoint, nil
}
