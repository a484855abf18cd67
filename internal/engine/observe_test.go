package engine

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestObserveIsNoUse: a sandbox that is observed again and again idles out, and one
// that may rest or hibernates is not reached.
func TestObserveIsNoUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), nil)
		observe := func(id string) error {
			resp, err := e.Observe(id, newForward(context.Background(), "/health", ""))
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if resp.StatusCode >= http.StatusInternalServerError {
				t.Errorf("status %d", resp.StatusCode)
			}
			return nil
		}
		observable := func(want ...string) {
			t.Helper()
			if got := e.Observable(); !slices.Equal(got, want) {
				t.Errorf("observable are %q; want %q", got, want)
			}
		}
		resting := e.mustCreate(t, sandbox.CreateRequest{})
		if err := observe(resting.ID); !errors.Is(err, sandbox.Conflict) {
			t.Errorf("a sandbox that may rest: %v", err)
		}
		s := e.mustCreate(t, sandbox.CreateRequest{Restless: true, Limits: sandbox.Limits{Idle: 10 * time.Second}})
		observable(s.ID)
		for range 4 {
			if err := observe(s.ID); err != nil {
				t.Error(err)
			}
			time.Sleep(2 * time.Second)
		}
		if err := e.Hibernate(t.Context(), alice, s.ID); err != nil {
			t.Fatal(err)
		}
		if err := observe(s.ID); !errors.Is(err, sandbox.Conflict) {
			t.Errorf("a hibernated sandbox: %v", err)
		}
		observable()
		if got := e.mustGet(t, s.ID); got.State != sandbox.Hibernated {
			t.Errorf("observing made it %s", got.State)
		}
		if err := e.Wake(t.Context(), alice, s.ID); err != nil {
			t.Fatal(err)
		}
		for range 6 {
			_ = observe(s.ID)
			time.Sleep(2 * time.Second)
		}
		if got := e.mustGet(t, s.ID); got.State != sandbox.Stopped {
			t.Errorf("a sandbox that is only observed for 12s is %s", got.State)
		}
		if err := observe(s.ID); !errors.Is(err, sandbox.NotFound) {
			t.Errorf("a stopped sandbox: %v", err)
		}
	})
}
