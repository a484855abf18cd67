package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/client"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

var _ driver.ImageBuilder = (*images)(nil)

// BuildImage implements [driver.ImageBuilder].
func (im *images) BuildImage(ctx context.Context, order driver.ImageBuild, said io.Writer) (sandbox.Image, error) {
	i, err := im.build(ctx, order, said)
	return i, sandbox.Wrap(err, "build image", order.Name)
}

func (im *images) build(ctx context.Context, order driver.ImageBuild, said io.Writer) (sandbox.Image, error) {
	name, _, err := imageName(order.Name)
	if err != nil {
		return sandbox.Image{}, err
	}
	e, err := im.conn.open(ctx)
	if err != nil {
		return sandbox.Image{}, err
	}
	args := make(map[string]*string, len(order.Args))
	for k, v := range order.Args {
		args[k] = &v
	}
	resp, err := e.ImageBuild(ctx, order.Context, client.ImageBuildOptions{
		Tags: []string{name}, Dockerfile: "Dockerfile", BuildArgs: args, NetworkMode: order.Network, Remove: true, ForceRemove: true,
	})
	if err != nil {
		return sandbox.Image{}, e.Explain(err)
	}
	defer resp.Body.Close()
	if err := tellBuild(resp.Body, said); err != nil {
		return sandbox.Image{}, err
	}
	return im.Image(ctx, name)
}

// tellBuild copies the output of a build to said. It returns the error that the
// build ends with.
func tellBuild(r io.Reader, said io.Writer) error {
	var last bytes.Buffer // the latest output, for the error message
	dec := json.NewDecoder(r)
	for {
		var m jsonstream.Message
		err := dec.Decode(&m)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return sandbox.Errorf(sandbox.Unavailable, "read output of the build: %w", err)
		}
		if m.Error != nil {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "%w: %s", m.Error, last.String()),
				"read its output; if a base image cannot be pulled, name one that is here: --base IMAGE")
		}
		if m.Stream == "" {
			continue
		}
		if last.Len() > 4<<10 {
			last.Reset()
		}
		last.WriteString(m.Stream)
		if _, err := fmt.Fprint(said, m.Stream); err != nil {
			return err
		}
	}
}
