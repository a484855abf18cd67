package engine

import (
	"context"
	"io"

	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Unpack unpacks an uncompressed tar archive into a sandbox, as its root user.
// It keeps existing directories and replaces existing files.
func (e *Engine) Unpack(ctx context.Context, p sandbox.Principal, id string, r io.Reader, to sandbox.UnpackTo) error {
	return e.doFile(ctx, p, id, to.Path, "unpack archive", func(b *liveSandbox) error {
		return b.guest.Unpack(ctx, r, guestapi.UnpackOptions{Path: request.Absolute(to.Path), File: to.File, Owner: to.Owner})
	})
}

// MarkLayer makes a sandbox record the present state of its root file system.
func (e *Engine) MarkLayer(ctx context.Context, p sandbox.Principal, id string) error {
	return e.doFile(ctx, p, id, "/", "mark layer", func(b *liveSandbox) error { return b.guest.MarkLayer(ctx) })
}

// Layer returns the changes of a sandbox's root file system since MarkLayer, as
// an uncompressed layer of an image. The layer is complete only if the archive
// has its end marker. The caller must close it.
func (e *Engine) Layer(ctx context.Context, p sandbox.Principal, id string) (io.ReadCloser, error) {
	const op = "read layer"
	b, release, err := e.useFile(ctx, p, id, "/")
	if err != nil {
		return nil, sandbox.Wrap(err, op, "")
	}
	r, err := b.guest.Layer(ctx)
	if err != nil {
		release()
		return nil, sandbox.Wrap(b.Explain(ctx, err), op, "")
	}
	return &heldReader{r, release}, nil
}
