package engine

import (
	"context"
	"io"
	"time"

	"github.com/glovebox-dev/glovebox/internal/engine/guestlink"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Script runs a script of the shell in the working directory of the sandbox, as
// root, and returns its output.
func (b *liveSandbox) Script(ctx context.Context, timeout time.Duration, script string, args ...string) (io.ReadCloser, error) {
	return guestlink.Script(ctx, b.guest, timeout, script, args...)
}

// PutTemp writes a file in the sandbox, as root.
func (b *liveSandbox) PutTemp(ctx context.Context, path string, r io.Reader) error {
	_, err := b.guest.Write(ctx, path, r, guestapi.WriteOptions{User: sandbox.Root})
	return err
}
