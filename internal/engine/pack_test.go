package engine

import (
	"bytes"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/engine/hibernation"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestPackCold compresses a state that stays cold, once, and records its size. A later
// server asks again.
func TestPackCold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, dir := newWorld(), t.TempDir()
		opts := saving(w, hibernation.Settings{CompressAfter: time.Hour}, detached)
		e := openWorld(t, w, dir, opts)
		s := e.mustCreate(t, sandbox.CreateRequest{})
		box := w.only(t)
		hibernate := func() {
			t.Helper()
			if err := e.Hibernate(t.Context(), alice, s.ID); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		sweep := func(want int, size int64) {
			t.Helper()
			e.mustSweep(t)
			synctest.Wait()
			if got := e.mustGet(t, s.ID).Hibernation.Bytes; box.packs != want || got != size {
				t.Errorf("packed %d times, %d bytes; want %d, %d", box.packs, got, want, size)
			}
		}
		hibernate()
		time.Sleep(time.Hour - time.Second)
		sweep(0, 10)
		time.Sleep(time.Second)
		sweep(1, 5)
		sweep(1, 5)
		if states, err := e.store.SavedStates(t.Context()); err != nil || len(states) != 1 || states[0].Bytes != 5 {
			t.Errorf("recorded are %+v, %v", states, err)
		}
		e.crash(t)
		e = openWorld(t, w, dir, opts)
		e.mustSweep(t) // takes it over
		sweep(2, 5)
		if err := e.Wake(t.Context(), alice, s.ID); err != nil {
			t.Fatal(err)
		}
		hibernate()
		sweep(2, 10)
		time.Sleep(time.Hour)
		sweep(3, 5)
	})
}

// TestPackUsed wakes a sandbox while its state is compressed: nobody is warned, and the
// record is that of the sandbox that runs.
func TestPackUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var logged bytes.Buffer
		e := openWorld(t, w, t.TempDir(), saving(w, hibernation.Settings{CompressAfter: time.Hour}, func(o *Options) {
			o.Log = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelWarn}))
		}))
		s := e.mustCreate(t, sandbox.CreateRequest{})
		if err := e.Hibernate(t.Context(), alice, s.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		box := w.only(t)
		box.packing = func() {
			if err := e.Wake(t.Context(), alice, s.ID); err != nil {
				t.Error(err)
			}
		}
		e.mustSweep(t)
		synctest.Wait()
		if got := e.mustGet(t, s.ID); got.Hibernation.Bytes != 0 || got.State != sandbox.Running || box.packs != 1 {
			t.Errorf("woken while it was packed %d times: %s, %+v", box.packs, got.State, got.Hibernation)
		}
		if logged.Len() > 0 {
			t.Errorf("logged: %s", &logged)
		}
		box.packing = nil
		if err := e.Hibernate(t.Context(), alice, s.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		box.mu.Lock()
		box.packErr = sandbox.NoSpace(nil)
		box.mu.Unlock()
		for range 3 {
			e.mustSweep(t)
			synctest.Wait()
		}
		if n := bytes.Count(logged.Bytes(), []byte("compress the state")); n != 1 || e.mustGet(t, s.ID).Hibernation.Bytes != 10 {
			t.Errorf("a full disk was logged %d times, and the state has %d bytes", n, e.mustGet(t, s.ID).Hibernation.Bytes)
		}
	})
}
