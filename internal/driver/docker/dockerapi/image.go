package dockerapi

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"time"

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

// ImageImportAs makes an image of a tar archive, with a name and labels. The labels must
// need no quotes. After an error there may be an image.
func (e *Engine) ImageImportAs(ctx context.Context, name string, archive io.Reader, labels map[string]string) error {
	var changes []string
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		changes = append(changes, "LABEL "+label+"="+labels[label])
	}
	resp, err := e.ImageImport(ctx, client.ImageImportSource{Source: archive, SourceName: "-"}, name, client.ImageImportOptions{Changes: changes})
	if err != nil {
		return e.Explain(err)
	}
	if _, err := io.Copy(io.Discard, resp); err != nil {
		return errors.Join(e.Explain(err), resp.Close())
	}
	resp.Close()
	if _, err := e.ImageInspect(ctx, name); err != nil {
		return e.Explain(err)
	}
	return nil
}

// RemoveImage removes an image by its ID. It waits for containers that are only
// looked at.
func (e *Engine) RemoveImage(ctx context.Context, id string) error {
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		_, err := e.ImageRemove(ctx, id, client.ImageRemoveOptions{PruneChildren: true})
		if err == nil || errdefs.IsNotFound(err) {
			return nil
		}
		if !errdefs.IsConflict(err) {
			return e.Explain(err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return errors.Join(e.Explain(err), ctx.Err())
		}
	}
}
