package imagebuild

import (
	"context"
	"errors"
	"io"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// ByEngine sends a packed directory to a container engine, which builds the
// image. It sets the Context of order. It reports an error in reading the
// directory instead of the engine's.
func ByEngine(ctx context.Context, b driver.ImageBuilder, dir string, order driver.ImageBuild, said io.Writer) (sandbox.Image, error) {
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := Pack(w, dir)
		w.CloseWithError(err)
		packed <- err
	}()
	order.Context = r
	i, err := b.BuildImage(ctx, order, said)
	r.Close()
	if packErr := <-packed; packErr != nil && !errors.Is(packErr, io.ErrClosedPipe) {
		return sandbox.Image{}, sandbox.Wrap(packErr, "build image", order.Name)
	}
	return i, err
}
