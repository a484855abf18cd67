package gvisor

import (
	"context"
	"errors"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// imageRoot returns the root file system of a box of an image, or nil for the
// host's. The caller calls the returned function when the box is made, to release
// the image.
func imageRoot(ctx context.Context, images *image.Store, ref string) (*message.ImageRoot, func(), error) {
	if ref == sandbox.ImageHost {
		return nil, func() {}, nil
	}
	if images == nil {
		return nil, nil, sandbox.WithHint(
			sandbox.Errorf(sandbox.Unsupported, "image %q: this driver has no images but %q", ref, sandbox.ImageHost),
			"leave the image out")
	}
	root, err := images.Root(ctx, ref)
	if errors.Is(err, sandbox.NotFound) {
		if _, err = images.Pull(ctx, ref, image.PullOptions{Missing: true}); err == nil {
			root, err = images.Root(ctx, ref)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	return &message.ImageRoot{File: root.Path, Config: root.Config}, root.Close, nil
}
