package hostfiles

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver/fake"
	"github.com/glovebox-dev/glovebox/internal/engine"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
	"github.com/glovebox-dev/glovebox/internal/workspace"
)

// The test binary is also the program of the fake driver's boxes.
func TestMain(m *testing.M) {
	fake.Hook()
	os.Exit(m.Run())
}

// openEngine returns an engine with the fake driver, whose boxes have the files
// of this machine.
func openEngine(t *testing.T) *engine.Engine {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the fake driver needs Linux")
	}
	dir := t.TempDir()
	drv, err := fake.New(fake.Options{Dir: filepath.Join(dir, "fake"), Pretend: sandbox.ControlNames()})
	if err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(t.Context(), store.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	set, err := workspace.Open(filepath.Join(dir, "workspaces"))
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Options{Driver: drv, Store: db, StateDir: dir, Workspaces: workspace.Local{Set: set}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
		for _, c := range []interface{ Close() error }{set, drv, db} {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return e
}
