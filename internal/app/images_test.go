package app

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// builder is a driver with an engine that reads what it is to build from.
type builder struct{ driver.Driver }

func (builder) BuildImage(_ context.Context, order driver.ImageBuild, said io.Writer) (sandbox.Image, error) {
	n, err := io.Copy(said, order.Context)
	if err != nil {
		err = sandbox.Errorf(sandbox.Unavailable, "the engine does not answer: %w", err)
	}
	return sandbox.Image{Name: order.Name, SizeBytes: n}, err
}

// An engine that is given nothing to build from is not to blame for it.
func TestBuildImageOfEngine(t *testing.T) {
	o := testOptions(t, t.TempDir())
	makeFake := o.TestDrivers["fake"]
	o.TestDrivers["fake"] = func(o DriverOptions) (driver.Driver, error) {
		d, err := makeFake(o)
		return builder{d}, err
	}
	s := mustOpen(t, o)
	dir := t.TempDir()
	_, err := s.BuildImage(t.Context(), ImageBuild{Dir: dir, Name: "x"}, io.Discard)
	if err == nil || strings.Contains(err.Error(), "engine") || !strings.Contains(err.Error(), "build image x: "+dir+" has no Dockerfile") {
		t.Errorf("without a Dockerfile: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte("FROM scratch\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if i, err := s.BuildImage(t.Context(), ImageBuild{Dir: dir, Name: "x"}, io.Discard); err != nil || i.SizeBytes == 0 {
		t.Errorf("with one: %+v, %v", i, err)
	}
}
