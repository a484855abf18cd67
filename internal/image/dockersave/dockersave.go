// Package dockersave reads images from a Docker engine on this machine, as docker
// save does.
//
// Package app imports it, on systems without package image too. It keeps no
// state; the caller closes the archive that it gets.
package dockersave

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// defaultDocker is where a Docker engine listens if DOCKER_HOST is not set.
const defaultDocker = "unix:///var/run/docker.sock"

// Open returns an archive of an image of a Docker engine on this
// machine. host is the value of DOCKER_HOST, or "". The caller closes the
// archive.
func Open(ctx context.Context, host, name string) (io.ReadCloser, error) {
	if host == "" {
		host = defaultDocker
	}
	path, ok := strings.CutPrefix(host, "unix://")
	if !ok {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "DOCKER_HOST: %s is not on this machine", host),
			"use docker save %s | glovebox images load -", name)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	// The host part of the URL is ignored on a socket.
	address := "http://docker/images/get?names=" + url.QueryEscape(name)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "docker at %s: %w", host, err), "check that it runs, and that you may use it")
	}
	a := &archive{resp.Body, transport}
	if resp.StatusCode != http.StatusOK {
		err := sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "docker has no image %s (it answers %s)", name, resp.Status),
			"docker images lists those that it has")
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// An archive is the stream of an archive with its connection.
type archive struct {
	io.ReadCloser
	transport *http.Transport
}

// Close closes the archive and the connection.
func (a *archive) Close() error {
	err := a.ReadCloser.Close()
	a.transport.CloseIdleConnections()
	return err
}
