package engine

import (
	"context"
	"io"

	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// WriteFileAsRoot is [Engine.WriteFile] as the sandbox's root user, for callers
// whose programs run as root too. The root user of a sandbox has no rights
// outside of it.
func (e *Engine) WriteFileAsRoot(ctx context.Context, p sandbox.Principal, id, path string, r io.Reader) error {
	return e.doFile(ctx, p, id, path, "write file", func(b *liveSandbox) error {
		_, err := b.guest.Write(ctx, request.Absolute(path), r, guestapi.WriteOptions{User: sandbox.Root})
		return err
	})
}

// ReadFileAsRoot is [Engine.ReadFile] of a whole file as the sandbox's root
// user. The caller must close r.
func (e *Engine) ReadFileAsRoot(ctx context.Context, p sandbox.Principal, id, path string) (r io.ReadCloser, size int64, err error) {
	const op = "read file"
	b, release, err := e.useFile(ctx, p, id, path)
	if err != nil {
		return nil, 0, sandbox.Wrap(err, op, "")
	}
	r, size, err = b.guest.Read(ctx, request.Absolute(path), 0, -1, guestapi.FileOptions{User: sandbox.Root})
	if err != nil {
		err = b.fileError(ctx, err, path)
		release()
		return nil, 0, sandbox.Wrap(err, op, "")
	}
	return &heldReader{r, release}, size, nil
}
