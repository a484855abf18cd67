package app

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestRemovalAndStart has a System start before, during and after the removal of its
// state directory. Nothing is removed before, and nothing is left in between.
func TestRemovalAndStart(t *testing.T) {
	o := testOptions(t, filepath.Join(t.TempDir(), "state"))
	o.Detached = true
	before := openOnce(t, o)
	if _, err := before.Engine.Create(t.Context(), sandbox.Local, sandbox.CreateRequest{}); err != nil {
		t.Fatal(err)
	}
	if r, err := BeginRemoval(t.Context(), o); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("removal while a System is open: %v, %v", r, err)
	}
	if err := before.Close(t.Context()); err != nil {
		t.Fatal(err)
	}

	r, err := BeginRemoval(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	start := func() {
		t.Helper()
		if s, err := Open(t.Context(), o); !errors.Is(err, sandbox.Unavailable) {
			t.Errorf("start during a removal: %v, %v", s, err)
		}
	}
	start()
	var removed []string
	err = r.Run(t.Context(), func(what string) {
		if what != o.Config.StateDir {
			start()
		}
		removed = append(removed, what)
	})
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	if len(removed) != 2 { // the sandbox and the directory
		t.Errorf("removed: %q", removed)
	}
}

// TestRemovalGivenUp keeps the state directory usable.
func TestRemovalGivenUp(t *testing.T) {
	o := testOptions(t, filepath.Join(t.TempDir(), "state"))
	if err := openOnce(t, o).Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := BeginRemoval(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := openOnce(t, o).Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r, err = BeginRemoval(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.Run(t.Context(), func(string) {}), r.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(o.Config.StateDir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the state directory is still there: %v", err)
	}
}

// openOnce returns a System that the caller closes.
func openOnce(t *testing.T, o Options) *System {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the fake driver needs Linux")
	}
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
