package gvisor

import (
	"context"
	"errors"
	"strconv"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
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

// imageRoot returns the root file system of a box of an image, or nil for the
// host's. The caller calls the returned function when the box is made, to release
// the image.
func (d *Driver) imageRoot(ctx context.Context, ref string) (*message.ImageRoot, func(), error) {
	if ref == sandbox.ImageHost {
		return nil, func() {}, nil
	}
	if d.opts.Images == nil {
		return nil, nil, sandbox.WithHint(
			sandbox.Errorf(sandbox.Unsupported, "image %q: this driver has no images but %q", ref, sandbox.ImageHost),
			"leave the image out")
	}
	root, err := d.opts.Images.Root(ctx, ref)
	if errors.Is(err, sandbox.NotFound) {
		if _, err = d.opts.Images.Pull(ctx, ref, image.PullOptions{Missing: true}); err == nil {
			root, err = d.opts.Images.Root(ctx, ref)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	return &message.ImageRoot{File: root.Path, Config: root.Config}, root.Close, nil
}

// rootAnnotations returns annotations that make gVisor use a file as the root file
// system. A writable layer of bounded size, also in a file, lies above it. gVisor's
// overlay setting does not apply then.
func (b *madeBox) rootAnnotations(file string) map[string]string {
	const prefix = "dev.gvisor.spec.rootfs."
	return map[string]string{
		prefix + "source":  file,
		prefix + "type":    "erofs",
		prefix + "overlay": "dir=" + b.dir,
		prefix + "options": "size=" + strconv.FormatInt(b.record.Spec.Limits.DiskBytes, 10),
	}
}

// useImage makes a specification one of a box of an OCI image.
func (b *madeBox) useImage(spec *specs.Spec, root *message.ImageRoot) {
	spec.Annotations = b.rootAnnotations(root.File)
	c := root.Config
	spec.Process.Env = append(spec.Process.Env, c.Env...)
	spec.Process.Args = append(spec.Process.Args, "--image-env")
	if b.record.Spec.Workspace == "" {
		// A workspace belongs to the user, and programs start in it.
		spec.Process.Args = append(spec.Process.Args, "--image-user", c.User, "--image-dir", c.WorkDir)
	}
}
