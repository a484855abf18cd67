package app

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine"
	"github.com/glovebox-dev/glovebox/internal/imagebuild"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Images returns the driver as a keeper of images, or an error of kind
// Unsupported if it keeps none.
func (s *System) Images() (driver.ImageKeeper, error) {
	return driver.Images(s.driver)
}

// AdoptImage makes an image that is here the operator's, for all principals.
func (s *System) AdoptImage(ctx context.Context, ref string) (sandbox.Image, error) {
	k, err := s.Images()
	if err != nil {
		return sandbox.Image{}, err
	}
	i, err := k.Image(ctx, ref)
	if err != nil {
		return sandbox.Image{}, err
	}
	return i, s.Engine.AdoptImages(ctx, i)
}

// PruneImages removes images that were not used for so long, or all, and what no
// image has, and forgets whose the images were that are gone.
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

// An ImageBuild is an order for an image.
type ImageBuild struct {
	// Dir is a directory with a Dockerfile and what that copies; Name is what to
	// call the image.
	Dir, Name string
	// Args are the build's arguments. Network is what its programs reach: rules
	// as for a sandbox, or an engine's own word.
	Args    map[string]string
	Network string
	// Limits are those of the sandbox that it is built in, where it is built in
	// one; zeros are the defaults of builds. Its programs may run as long as a run may.
	Limits sandbox.Limits
	// Progress, if not nil, is told how far the fetching of the base is.
	Progress func(sandbox.ImageProgress)
}

// buildLimits are those of a sandbox that an image is built in, as far as the
// operator's maxima allow: installing packages takes more than running a program.
func (s *System) buildLimits() sandbox.Limits {
	l := sandbox.Limits{CPUs: float64(runtime.NumCPU()), MemoryBytes: 2 << 30, DiskBytes: 16 << 30, Processes: 1024}
	most := s.opts.Config.Sandbox.Maximum.Limits()
	if most.CPUs > 0 {
		l.CPUs = min(l.CPUs, most.CPUs)
	}
	if most.MemoryBytes > 0 {
		l.MemoryBytes = min(l.MemoryBytes, most.MemoryBytes)
	}
	if most.DiskBytes > 0 {
		l.DiskBytes = min(l.DiskBytes, most.DiskBytes)
	}
	if most.Processes > 0 {
		l.Processes = min(l.Processes, most.Processes)
	}
	return l
}

// BuildImage builds an image of a Dockerfile for the operator: by the driver's
// engine if it has one, else in a sandbox. What the build says goes to said.
func (s *System) BuildImage(ctx context.Context, order ImageBuild, said io.Writer) (sandbox.Image, error) {
	i, err := s.buildImage(ctx, order, said)
	if err != nil {
		return i, err
	}
	return i, s.Engine.AdoptImages(ctx, i)
}

func (s *System) buildImage(ctx context.Context, order ImageBuild, said io.Writer) (sandbox.Image, error) {
	if b, ok := driver.Ability[driver.ImageBuilder](s.driver); ok {
		return buildByEngine(ctx, b, order, said)
	}
	images, ok := driver.Ability[imageMaker](s.driver)
	if !ok {
		return sandbox.Image{}, sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "driver %s builds no images", s.DriverName()),
			"build it with an engine: --driver docker; or load what another tool built: glovebox images load")
	}
	network, err := sandbox.ParseNetwork(strings.Split(order.Network, ",")...)
	if err != nil {
		return sandbox.Image{}, sandbox.Wrap(err, "network", "")
	}
	b := imagebuild.Build{
		Sandboxes: s.Engine, Images: builderImages{images, s.Engine}, Dir: order.Dir, Name: order.Name, Args: order.Args,
		Limits: order.Limits.Or(s.buildLimits()), Network: network, Timeout: time.Duration(s.opts.Config.Run.MaxTimeout),
		Said: said, Progress: order.Progress,
	}
	return b.Run(ctx)
}

// buildByEngine gives an engine what is in the directory. It is not to blame for
// what cannot be read there.
func buildByEngine(ctx context.Context, b driver.ImageBuilder, order ImageBuild, said io.Writer) (sandbox.Image, error) {
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := imagebuild.Pack(w, order.Dir)
		w.CloseWithError(err)
		packed <- err
	}()
	i, err := b.BuildImage(ctx, driver.ImageBuild{Context: r, Name: order.Name, Args: order.Args, Network: order.Network}, said)
	r.Close()
	if packErr := <-packed; packErr != nil && !errors.Is(packErr, io.ErrClosedPipe) {
		return sandbox.Image{}, sandbox.Wrap(packErr, "build image", order.Name)
	}
	return i, err
}

// An imageMaker has images, and makes others of them.
type imageMaker interface {
	driver.ImageKeeper
	driver.ImageExtender
}

// builderImages are the images of a build at a command line: those that are here
// for the local user, or come from a registry.
type builderImages struct {
	imageMaker
	engine *engine.Engine
}

func (b builderImages) PullImage(ctx context.Context, order driver.ImagePull) (sandbox.Image, error) {
	return b.engine.FetchImage(ctx, sandbox.Local, order.Ref, order.Progress)
}

// LoadImages loads images for the operator from the file or directory at path or, if that is
// empty, from r. name, if not empty, is what to call the only one.
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

// defaultDocker is where a Docker engine listens unless DOCKER_HOST says
// otherwise.
const defaultDocker = "unix:///var/run/docker.sock"

// LoadDockerImage takes an image over from a Docker engine on this machine. host
// is what DOCKER_HOST says, or empty.
func (s *System) LoadDockerImage(ctx context.Context, host, name string, progress func(sandbox.ImageProgress)) ([]sandbox.Image, error) {
	if host == "" {
		host = defaultDocker
	}
	path, ok := strings.CutPrefix(host, "unix://")
	if !ok {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "DOCKER_HOST: %s is not on this machine", host),
			"use docker save %s | glovebox images load -", name)
	}
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	defer client.CloseIdleConnections()
	// The engine is named in no URL that a socket is reached by.
	address := "http://docker/images/get?names=" + url.QueryEscape(name)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "docker at %s: %w", host, err), "check that it runs, and that you may use it")
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "docker has no image %s (it answers %s)", name, resp.Status),
			"docker images lists those that it has")
	}
	return s.LoadImages(ctx, "", resp.Body, "", progress)
}
