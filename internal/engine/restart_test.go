package engine

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// restartingDriver is one whose boxes can start afresh.
type restartingDriver struct{ worldDriver }

func (d restartingDriver) Info() driver.Info {
	info := d.worldDriver.Info()
	info.Features.Restart = true
	return info
}

func openRestarting(t *testing.T, w *world) *Engine {
	return openWorld(t, w, t.TempDir(), func(o *Options) { o.Driver = restartingDriver{worldDriver{w}} })
}

// TestRestart restarts a sandbox, but not below a run, and not by a driver that cannot.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ctx := newWorld(), t.Context()
		e := openRestarting(t, w)
		s := e.mustCreate(t, sandbox.CreateRequest{})
		run, err := e.Start(ctx, alice, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"sleep", "1h"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Restart(ctx, alice, s.ID); sandbox.KindOf(err) != sandbox.Conflict || w.only(t).restarts != 0 {
			t.Errorf("with a run: %v, %d restarts; want a conflict", err, w.only(t).restarts)
		}
		if _, err := e.StopRun(ctx, alice, run.ID); err != nil {
			t.Fatal(err)
		}
		if err := e.Restart(ctx, "mallory", s.ID); sandbox.KindOf(err) != sandbox.NotFound {
			t.Errorf("of another principal: %v, want not found", err)
		}
		if err := e.Restart(ctx, alice, s.ID); err != nil || w.only(t).restarts != 1 {
			t.Errorf("%v, %d restarts", err, w.only(t).restarts)
		}
		w.only(t).unrestarted = sandbox.Errorf(sandbox.Conflict, "a file changed")
		if err := e.Restart(ctx, alice, s.ID); sandbox.KindOf(err) != sandbox.Conflict || e.mustGet(t, s.ID).State != sandbox.Running {
			t.Errorf("a restart that failed: %v, and the sandbox is %s", err, e.mustGet(t, s.ID).State)
		}
		w.only(t).unrestarted = fmt.Errorf("%w: without its files", driver.ErrGone)
		if err := e.Restart(ctx, alice, s.ID); err == nil {
			t.Error("a restart that ended the box succeeds")
		}
		time.Sleep(time.Second)
		if got := e.mustGet(t, s.ID); got.State != sandbox.Stopped {
			t.Errorf("a sandbox whose box ended is %s", got.State)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), func(*Options) {})
		s := e.mustCreate(t, sandbox.CreateRequest{})
		if err := e.Restart(t.Context(), alice, s.ID); sandbox.KindOf(err) != sandbox.Unsupported || sandbox.HintOf(err) == "" || w.only(t).restarts != 0 {
			t.Errorf("a driver that cannot: %v, want it refused with a hint", err)
		}
		_, err := e.Create(t.Context(), alice, sandbox.CreateRequest{AtEnd: sandbox.AtEndHibernateFiles})
		if sandbox.KindOf(err) != sandbox.Unsupported || sandbox.HintOf(err) == "" {
			t.Errorf("a sandbox that is to restart at its end: %v, want it refused with a hint", err)
		}
	})
}

// TestRestartAtEnd: a sandbox that keeps only its files at its end has restarted before it
// hibernates.
func TestRestartAtEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openRestarting(t, w)
		s := e.mustCreate(t, sandbox.CreateRequest{TTL: time.Minute, AtEnd: sandbox.AtEndHibernateFiles, Restless: true})
		time.Sleep(2 * time.Minute)
		if got := e.mustGet(t, s.ID); got.State != sandbox.Hibernated || w.only(t).restarts != 1 || !w.only(t).isPaused() {
			t.Errorf("after its end it is %s, with %d restarts, paused %t", got.State, w.only(t).restarts, w.only(t).isPaused())
		}
		if err := e.Wake(t.Context(), alice, s.ID); err != nil || w.only(t).restarts != 1 {
			t.Errorf("woken: %v, %d restarts", err, w.only(t).restarts)
		}
	})
}
