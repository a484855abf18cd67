package gvisor

import (
	"context"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

var (
	_ driver.ImageKeeper   = (*Driver)(nil)
	_ driver.ImageExtender = (*Driver)(nil)
)

// PullImage implements [driver.ImageKeeper].
func (d *Driver) PullImage(ctx context.Context, o driver.ImagePull) (sandbox.Image, error) {
	return d.opts.Images.Pull(ctx, o.Ref, image.PullOptions{Missing: o.Missing, Anywhere: o.Anywhere, Progress: o.Progress})
}

// ImageName implements [driver.ImageKeeper].
func (d *Driver) ImageName(ref string) (string, error) { return image.Name(ref) }

// LoadImages implements [driver.ImageKeeper].
func (d *Driver) LoadImages(ctx context.Context, from driver.ImageArchive, progress func(sandbox.ImageProgress)) ([]sandbox.Image, error) {
	opts := image.LoadOptions{Name: from.Name, Progress: progress}
	if from.Path == "" {
		return d.opts.Images.LoadFrom(ctx, from.Reader, opts)
	}
	return d.opts.Images.Load(ctx, from.Path, opts)
}

// Images implements [driver.ImageKeeper].
func (d *Driver) Images(ctx context.Context) ([]sandbox.Image, error) { return d.opts.Images.List(ctx) }

// Image implements [driver.ImageKeeper].
func (d *Driver) Image(ctx context.Context, ref string) (sandbox.Image, error) {
	return d.opts.Images.Image(ctx, ref)
}

// RemoveImage implements [driver.ImageKeeper].
func (d *Driver) RemoveImage(ctx context.Context, ref string) (int64, error) {
	return d.opts.Images.Remove(ctx, ref)
}

// PruneImages implements [driver.ImageKeeper].
func (d *Driver) PruneImages(ctx context.Context, unused time.Duration, all bool) ([]string, int64, error) {
	return d.opts.Images.Prune(ctx, image.PruneOptions{Unused: unused, All: all})
}

// ExtendImage implements [driver.ImageExtender].
func (d *Driver) ExtendImage(ctx context.Context, order driver.ImageExtension) (sandbox.Image, error) {
	return d.opts.Images.Extend(ctx, image.Extension{
		Base: order.Base, Layer: order.Layer, Config: order.Config, Name: order.Name, By: order.By,
	})
}
