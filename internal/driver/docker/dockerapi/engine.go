package dockerapi

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	"github.com/glovebox-dev/glovebox/internal/driver/container"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// An Engine is a container engine that answers, with the facts that it reports
// about itself. The caller closes it.
type Engine struct {
	*client.Client
	At    Endpoint
	Name  string // Docker or Podman, as configured
	Facts system.Info
	// configDir is the directory where docker login leaves credentials for
	// registries.
	configDir string
}

// findTime bounds how long one endpoint may take to answer.
const findTime = 10 * time.Second

// Find returns the first container engine that answers.
func Find(ctx context.Context, opts Options) (*Engine, error) {
	places, err := Endpoints(opts)
	if err != nil {
		return nil, err
	}
	var first error
	for _, at := range places {
		e, err := open(ctx, opts.Name, at)
		if err == nil {
			e.configDir = configDir(opts.Getenv)
			return e, nil
		}
		// The error of a container engine that refuses says more than the error of a missing
		// socket.
		if first == nil || errors.Is(first, fs.ErrNotExist) && !errors.Is(err, fs.ErrNotExist) {
			first = err
		}
	}
	if first == nil {
		first = container.Unavailable(sandbox.Errorf(sandbox.Unavailable, "there is no place to look for %s", opts.Name), "set DOCKER_HOST")
	}
	return nil, first
}

// open returns the container engine at an endpoint, if it answers.
func open(ctx context.Context, name string, at Endpoint) (*Engine, error) {
	c, err := at.dial()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, findTime)
	defer cancel()
	info, err := c.Info(ctx, client.InfoOptions{})
	if err != nil {
		c.Close()
		return nil, at.explain(name, err)
	}
	e := &Engine{Client: c, At: at, Name: name, Facts: info.Info}
	if e.Facts.OSType != "" && e.Facts.OSType != "linux" {
		c.Close()
		return nil, container.Unavailable(sandbox.Errorf(sandbox.Unsupported, "%s at %s runs %s containers", name, at.Host, e.Facts.OSType),
			"switch it to Linux containers")
	}
	return e, nil
}

// Quotas reports whether the container engine may be able to bound a container's
// layer. Only the creation of the first box shows whether it can.
func (e *Engine) Quotas() bool {
	if e.Facts.Driver == "btrfs" || e.Facts.Driver == "zfs" {
		return true
	}
	for _, s := range e.Facts.DriverStatus {
		if s[0] == "Backing Filesystem" && strings.Contains(s[1], "xfs") {
			return true
		}
	}
	return false
}
