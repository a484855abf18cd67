package dockerapi

import (
	"context"
	"errors"
	"io"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// ImageFrom returns the ID of the image of a name. If there is none, it makes one of
// the tar archive that write writes.
func (e *Engine) ImageFrom(ctx context.Context, name string, write func(io.Writer) error) (string, error) {
	in, err := e.ImageInspect(ctx, name)
	if errdefs.IsNotFound(err) {
		pr, pw := io.Pipe()
		defer pr.Close()
		go func() { pw.CloseWithError(write(pw)) }()
		resp, ierr := e.ImageImport(ctx, client.ImageImportSource{Source: pr, SourceName: "-"}, name, client.ImageImportOptions{})
		if ierr != nil {
			return "", e.Explain(ierr)
		}
		if _, err := io.Copy(io.Discard, resp); err != nil {
			return "", errors.Join(e.Explain(err), resp.Close())
		}
		resp.Close()
		in, err = e.ImageInspect(ctx, name)
	}
	if err != nil {
		return "", e.Explain(err)
	}
	return in.ID, nil
}
