package engine

import (
	"context"
	"io"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// WriteFileAsRoot is [Engine.WriteFile] as the sandbox's root, for callers whose
// programs run as root, too. Root of a sandbox is nobody outside of it.
func (e *Engine) WriteFileAsRoot(ctx context.Context, p sandbox.Principal, id, path string, r io.Reader) error {
	return e.doFile(ctx, p, id, path, "write file", func(b *box) error {
		_, err := b.guest.Write(ctx, absolute(path), r, guestapi.WriteOptions{User: sandbox.Root})
		return err
	})
}
