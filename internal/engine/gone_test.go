package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestCheckWhileStarting checks a sandbox whose box does not exist yet.
func TestCheckWhileStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), nil)
		checked := false
		w.creating = func(_ context.Context, spec *driver.Spec) error {
			s, err := e.Check(t.Context(), alice, spec.ID)
			if err != nil || s.State != sandbox.Starting {
				t.Errorf("%v, %v", s.State, err)
			}
			checked = true
			return errors.New("enough")
		}
		if _, err := e.Create(t.Context(), alice, sandbox.CreateRequest{}); err == nil || !checked {
			t.Errorf("%v, checked %v", err, checked)
		}
	})
}
