package profile

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// CreateDefault makes a sandbox for a caller that named no image: of that image
// or, where it is neither here nor to be had and the driver has it, of
// [sandbox.ImageHost]. Then note says so, and the log does.
func CreateDefault(ctx context.Context, o Options, p sandbox.Principal, r sandbox.CreateRequest, image string) (sb sandbox.Sandbox, note string, err error) {
	r.Image = image
	sb, err = o.Engine.Create(ctx, p, r)
	if err == nil || ctx.Err() != nil || !slices.Contains(imageKinds, sandbox.KindOf(err)) {
		return sb, "", err
	}
	r.Image = sandbox.ImageHost
	sb, hostErr := o.Engine.Create(ctx, p, r)
	if hostErr != nil {
		// The image was what was asked for.
		o.Log.Warn("neither the default image nor the host's will do", "image", image, "error", err, "host_error", hostErr)
		return sandbox.Sandbox{}, "", errors.Join(err, hostErr)
	}
	o.Log.Warn("the default image is not to be had: the sandbox has this machine's own system instead", "sandbox", sb.ID, "image", image, "error", err)
	return sb, fmt.Sprintf("note: the default image %s is not to be had here; the sandbox has this machine's own programs, read-only (image %q)", image, sandbox.ImageHost), nil
}

// imageKinds are those of errors that may be the image's fault.
var imageKinds = []sandbox.Kind{sandbox.Unsupported, sandbox.NotFound, sandbox.Unavailable, sandbox.Invalid}
