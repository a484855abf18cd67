package app

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/audited"
	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/image/dockersave"
	"github.com/glovebox-dev/glovebox/internal/imagebuild"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Images returns the driver as a keeper of images. The error is of kind
// Unsupported if the driver keeps none.
func (s *System) Images() (driver.ImageKeeper, error) {
	return driver.Images(s.driver)
}

// AdoptImage gives an existing image to the operator, so that all principals can
// use it.
func (s *System) AdoptImage(ctx context.Context, ref string) (sandbox.Image, error) {
	k, err := s.Images()
	if err != nil {
		return sandbox.Image{}, err
	}
	i, err := k.Image(ctx, ref)
	if err != nil {
		return sandbox.Image{}, s.SuggestImage(ctx, ref, err)
	}
	return i, s.Engine.AdoptImages(ctx, i)
}

// PruneImages removes images that were unused for at least the given time, or
// all images, and data without an image. It also forgets the owners of images
// that no longer exist.
func (s *System) PruneImages(ctx context.Context, unused time.Duration, all bool) (names []string, freed int64, err error) {
	k, err := s.Images()
	if err != nil {
		return nil, 0, err
	}
	names, freed, err = k.PruneImages(ctx, unused, all)
	if err != nil {
		return names, freed, err
	}
	return names, freed, s.Engine.ForgetImages(ctx)
}

// An ImageBuild is a request to build an image.
type ImageBuild struct {
	// Dir is a directory with a Dockerfile and the files that it copies. Name is
	// the name of the image.
	Dir, Name string
	// Args are the build's arguments. Network is the network policy of its
	// programs: rules as for a sandbox, or a container engine's own network
	// mode.
	Args    map[string]string
	Network string
	// Limits are the limits of the sandbox for the build, if it needs one; zeros
	// are the defaults of builds. The timeout is the maximum of runs.
	Limits sandbox.Limits
	// Progress, if not nil, is called with the progress of fetching the base
	// image.
	Progress func(sandbox.ImageProgress)
}

// BuildImage builds an image from a Dockerfile for the operator: by the driver's
// container engine if it has one, else in a sandbox. It writes the build's
// output to said.
func (s *System) BuildImage(ctx context.Context, order ImageBuild, said io.Writer) (sandbox.Image, error) {
	i, err := s.buildImage(ctx, order, said)
	if err != nil {
		return i, err
	}
	return i, s.Engine.AdoptImages(ctx, i)
}

func (s *System) buildImage(ctx context.Context, order ImageBuild, said io.Writer) (sandbox.Image, error) {
	if b, ok := driver.Ability[driver.ImageBuilder](s.driver); ok {
		build := driver.ImageBuild{Name: order.Name, Args: order.Args, Network: order.Network}
		return imagebuild.ByEngine(ctx, b, order.Dir, build, said)
	}
	images, ok := driver.Ability[imageMaker](s.driver)
	if !ok {
		return sandbox.Image{}, sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "driver %s builds no images", s.DriverName()),
			"build it with a container engine: --driver docker; or load an image of another tool: glovebox images load")
	}
	network, err := sandbox.ParseNetwork(strings.Split(order.Network, ",")...)
	if err != nil {
		return sandbox.Image{}, sandbox.Wrap(err, "network", "")
	}
	b := imagebuild.Build{
		Sandboxes: s.Engine, Images: builderImages{images, s.Engine}, Dir: order.Dir, Name: order.Name, Args: order.Args,
		Limits: order.Limits.Or(imagebuild.Limits(s.opts.Config.Sandbox.Maximum.Limits())), Network: network, Timeout: s.opts.Config.Run.Unattended(),
		Said: said, Progress: order.Progress,
	}
	return b.Run(ctx)
}

// An imageMaker keeps images and makes new images from them.
type imageMaker interface {
	driver.ImageKeeper
	driver.ImageExtender
}

// builderImages are the images for a build at a command line: local images of
// the local user, or images from a registry.
type builderImages struct {
	imageMaker
	engine *audited.Engine
}

func (b builderImages) PullImage(ctx context.Context, order driver.ImagePull) (sandbox.Image, error) {
	return b.engine.FetchImage(ctx, sandbox.Local, order.Ref, order.Progress)
}

// LoadImages loads images for the operator. It reads the file or directory at
// path, or r if path is empty. If name is not empty, there must be one image,
// which gets that name.
func (s *System) LoadImages(ctx context.Context, path string, r io.Reader, name string, progress func(sandbox.ImageProgress)) ([]sandbox.Image, error) {
	k, err := s.Images()
	if err != nil {
		return nil, err
	}
	list, err := k.LoadImages(ctx, driver.ImageArchive{Path: path, Reader: r, Name: name}, progress)
	if err != nil {
		return list, err
	}
	return list, s.Engine.AdoptImages(ctx, list...)
}

// LoadDockerImage copies an image from a Docker engine on this machine. host is
// the value of DOCKER_HOST, or "".
func (s *System) LoadDockerImage(ctx context.Context, host, name string, progress func(sandbox.ImageProgress)) ([]sandbox.Image, error) {
	archive, err := dockersave.Open(ctx, host, name)
	if err != nil {
		return nil, err
	}
	defer archive.Close()
	return s.LoadImages(ctx, "", archive, "", progress)
}
