package imagebuild

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// oneImage is a driver that keeps the image that is made last.
type oneImage struct{ made driver.ImageExtension }

func (o *oneImage) PullImage(context.Context, string, bool, func(sandbox.ImageProgress)) (sandbox.Image, error) {
	return sandbox.Image{}, sandbox.Errorf(sandbox.NotFound, "there are no images")
}

func (o *oneImage) ExtendImage(_ context.Context, order driver.ImageExtension) (sandbox.Image, error) {
	o.made = order
	return sandbox.Image{Name: order.Name}, nil
}

// TestBuildHostile builds Dockerfiles that are to use up the memory of whoever
// builds them, and needs no sandbox for it.
func TestBuildHostile(t *testing.T) {
	doubling := func(instruction string) string {
		var b strings.Builder
		b.WriteString("FROM scratch\nENV A=" + strings.Repeat("x", 1000) + "\n")
		for range 18 {
			fmt.Fprintln(&b, instruction)
		}
		return b.String()
	}
	for what, text := range map[string]string{
		"by lines": doubling("ENV A=$A$A"),
		"by names": doubling("ENV A=$A$A B=$A"),
		"labels":   doubling("ENV A=$A$A\nLABEL b=$A"),
		"ARG":      strings.ReplaceAll(doubling("ARG A=$A$A"), "ENV", "ARG"),
	} {
		dir, images := t.TempDir(), &oneImage{}
		if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		b := Build{Images: images, Dir: dir, Name: "x", Said: io.Discard}
		if _, err := b.Run(t.Context()); !errors.Is(err, sandbox.Invalid) || !strings.Contains(err.Error(), "Dockerfile:") {
			t.Errorf("%s: %v; the last variable has %d bytes", what, err, len(strings.Join(images.made.Config.Env, "")))
		}
	}
}
