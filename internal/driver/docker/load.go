package docker

import (
	"context"
	"os"

	"github.com/moby/moby/client"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/docker/dockerapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// LoadImages implements [driver.ImageKeeper].
func (im *images) LoadImages(ctx context.Context, from driver.ImageArchive, progress func(sandbox.ImageProgress)) ([]sandbox.Image, error) {
	e, err := im.conn.open(ctx)
	if err != nil {
		return nil, err
	}
	r := from.Reader
	if from.Path != "" {
		f, err := os.Open(from.Path)
		if err != nil {
			return nil, sandbox.Errorf(sandbox.NotFound, "load images: %w", err)
		}
		defer f.Close()
		if fi, err := f.Stat(); err != nil || fi.IsDir() {
			return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "load images: %s is a directory, and engines load files", from.Path),
				"pack it: tar -C %s -c . | glovebox images load -", from.Path)
		}
		r = f
	}
	if progress != nil {
		progress(sandbox.ImageProgress{Step: "unpack"})
	}
	resp, err := e.ImageLoad(ctx, r)
	if err != nil {
		return nil, sandbox.Wrap(e.Explain(err), "load images", "")
	}
	defer resp.Close()
	names, err := dockerapi.Loaded(resp)
	if err != nil {
		return nil, sandbox.Wrap(e.Explain(err), "load images", "")
	}
	if from.Name != "" {
		if len(names) != 1 {
			return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "load images: the archive has %d images, and one name", len(names)), "leave the name out")
		}
		name, _, err := imageName(from.Name)
		if err != nil {
			return nil, err
		}
		if _, err := e.ImageTag(ctx, client.ImageTagOptions{Source: names[0], Target: name}); err != nil {
			return nil, sandbox.Wrap(e.Explain(err), "name image", name)
		}
		names[0] = name
	}
	var images []sandbox.Image
	for _, name := range names {
		i, err := im.Image(ctx, name)
		if err != nil {
			return nil, err
		}
		images = append(images, i)
	}
	return images, nil
}
