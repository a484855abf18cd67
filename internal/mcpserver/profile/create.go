package profile

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// CreateDefault makes a sandbox with a default image. If that fails and the image
// may be the cause, it uses [sandbox.ImageHost] instead. It then logs a warning
// and describes the replacement in note. If both fail, the error joins both
// errors.
func CreateDefault(ctx context.Context, o Options, p sandbox.Principal, r sandbox.CreateRequest, image string) (sb sandbox.Sandbox, note string, err error) {
	r.Image = image
	sb, err = o.Engine.Create(ctx, p, r)
	if err == nil || ctx.Err() != nil || !slices.Contains(imageKinds, sandbox.KindOf(err)) {
		return sb, "", err
	}
	r.Image = sandbox.ImageHost
	sb, hostErr := o.Engine.Create(ctx, p, r)
	if hostErr != nil {
		// Return the first error, too: the caller asked for that image.
		o.Log.Warn("neither the default image nor the host's will do", "image", image, "error", err, "host_error", hostErr)
		return sandbox.Sandbox{}, "", errors.Join(err, hostErr)
	}
	o.Log.Warn("the default image is not to be had: the sandbox has this machine's own system instead", "sandbox", sb.ID, "image", image, "error", err)
	return sb, fmt.Sprintf("note: the default image %s is not to be had here; the sandbox has this machine's own programs, read-only (image %q)", image, sandbox.ImageHost), nil
}

// imageKinds are the kinds of errors that an image can cause.
var imageKinds = []sandbox.Kind{sandbox.Unsupported, sandbox.NotFound, sandbox.Unavailable, sandbox.Invalid}
