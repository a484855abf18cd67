package dockerapi

import (
	"archive/tar"
	"context"
	"io"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// ReadFile returns the content of a file in a container. It returns nothing if the
// file is missing, not regular or larger than limit bytes.
func (e *Engine) ReadFile(ctx context.Context, name, file string, limit int64) ([]byte, error) {
	got, err := e.CopyFromContainer(ctx, name, client.CopyFromContainerOptions{SourcePath: file})
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, e.Explain(err)
	}
	defer got.Content.Close()
	r := tar.NewReader(got.Content)
	h, err := r.Next()
	if err != nil || h.Typeflag != tar.TypeReg || h.Size > limit {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(r, limit))
}
