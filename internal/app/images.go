package app

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Images returns the driver as a keeper of images, or an error of kind
// Unsupported if it keeps none.
func (s *System) Images() (driver.ImageKeeper, error) {
	return driver.Images(s.driver)
}

// ImageBuild is an order for an image.
type ImageBuild = driver.ImageBuild

// BuildImage builds an image of a Dockerfile, if the driver can. What the build
// says goes to said.
func (s *System) BuildImage(ctx context.Context, order ImageBuild, said io.Writer) (sandbox.Image, error) {
	b, ok := s.driver.(driver.ImageBuilder)
	if !ok {
		return sandbox.Image{}, sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "driver %s builds no images", s.DriverName()),
			"build it with an engine: --driver docker; or load what another tool built: glovebox images load")
	}
	return b.BuildImage(ctx, order, said)
}

// LoadImages loads images from the file or directory at path or, if that is
// empty, from r. name, if not empty, is what to call the only one.
func (s *System) LoadImages(ctx context.Context, path string, r io.Reader, name string, progress func(sandbox.ImageProgress)) ([]sandbox.Image, error) {
	k, err := s.Images()
	if err != nil {
		return nil, err
	}
	return k.LoadImages(ctx, driver.ImageArchive{Path: path, Reader: r, Name: name}, progress)
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
