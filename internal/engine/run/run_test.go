package run

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/engine/runlog"
	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestRun follows a run from its start to its record.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.mustBegin(t, time.Minute)
		if seen, err := r.View(); err != nil || seen.Status != sandbox.RunRunning || w.set.Find(r.ID()) != r {
			t.Errorf("in progress: %+v, %v", seen, err)
		}
		w.guest.events <- guestapi.Event{Data: &guestapi.DataEvent{Stdout: []byte("hello\n")}}
		w.guest.events <- exited(3)
		got, err := r.Wait(t.Context())
		if err != nil || got.Status != sandbox.RunFinished || got.Verdict.Code != sandbox.Failed || got.ExitCode == nil || *got.ExitCode != 3 {
			t.Errorf("finished: %+v, %v", got, err)
		}
		synctest.Wait()
		rec, err := w.records.Run(t.Context(), r.ID())
		if err != nil || rec.Status != sandbox.RunFinished || rec.StdoutBytes != 6 {
			t.Errorf("record: %+v, %v", rec, err)
		}
		if n := r.Extents()[runlog.Stdout].Total; n != 6 {
			t.Errorf("%d bytes of output", n)
		}
		if len(w.life.ended) != 1 || w.released.Load() != 1 {
			t.Errorf("ended %v, %d uses released", w.life.ended, w.released.Load())
		}
	})
}

// TestTimeout ends a program after its timeout.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		begun := time.Now()
		r := w.mustBegin(t, time.Minute)
		<-w.guest.signals
		if took := time.Since(begun); took != time.Minute {
			t.Errorf("the program was killed after %v", took)
		}
		w.guest.events <- guestapi.Event{End: &guestapi.End{Status: guestapi.EndDied, Detail: guestapi.EndDetail{Signal: 9}}}
		if got, err := r.Wait(t.Context()); err != nil || got.Verdict.Code != sandbox.Timeout {
			t.Errorf("%+v, %v", got.Verdict, err)
		}
		synctest.Wait()
	})
}

// TestNoTimeout has a program that may run as long as its sandbox.
func TestNoTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.mustBegin(t, sandbox.Forever)
		select {
		case <-w.guest.signals:
			t.Fatal("the program was killed")
		case <-time.After(365 * 24 * time.Hour):
		}
		if w.guest.timeout != sandbox.Forever+Backstop {
			t.Errorf("the guest is told a timeout of %v", w.guest.timeout)
		}
		w.guest.events <- guestapi.Event{End: &guestapi.End{Status: guestapi.EndOK}}
		if got, err := r.Wait(t.Context()); err != nil || got.Verdict.Code != sandbox.OK {
			t.Errorf("%+v, %v", got.Verdict, err)
		}
		synctest.Wait()
	})
}

// TestGiveUp has a guest that does not end a run: the sandbox is stopped, and the
// run ends with its stream.
func TestGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.mustBegin(t, time.Hour)
		begun := time.Now()
		r.Kill(verdict.FateCancelled, nil)
		if took := time.Since(begun); took != EndTimeout {
			t.Errorf("it was given up after %v", took)
		}
		if why, _, _ := w.life.Status(); why == nil || why.Code != sandbox.SandboxLost {
			t.Fatalf("the sandbox stops for %+v", why)
		}
		close(w.guest.events)
		if got, err := r.Wait(t.Context()); err != nil || got.Status != sandbox.RunFinished || got.Verdict.Code != sandbox.Cancelled {
			t.Errorf("%+v, %v", got, err)
		}
		synctest.Wait()
	})
}

// TestLetGo leaves a run to the next process: its record stays as it is.
func TestLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.mustBegin(t, time.Hour)
		r.LetGo()
		if !EndWithin(time.Second, []*Run{r}) {
			t.Fatal("the run is not left")
		}
		if _, err := r.Wait(t.Context()); !errors.Is(err, sandbox.Unavailable) {
			t.Errorf("wait: %v", err)
		}
		if rec, err := w.records.Run(t.Context(), r.ID()); err != nil || rec.Status != sandbox.RunRunning {
			t.Errorf("record: %+v, %v", rec, err)
		}
	})
}

// TestNoStart has a program that does not start: nothing is left of the run.
func TestNoStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.guest.failing = sandbox.Errorf(sandbox.NotFound, "no such file")
		r, err := w.begin(t, time.Minute)
		if !errors.Is(err, sandbox.ErrNoProgram) || !errors.Is(err, sandbox.Invalid) {
			t.Errorf("error is %v", err)
		}
		if _, err := w.records.Run(t.Context(), r.ID()); !errors.Is(err, sandbox.NotFound) {
			t.Errorf("record: %v", err)
		}
		if w.set.Find(r.ID()) != nil || len(w.life.ended) != 1 || w.released.Load() != 1 {
			t.Errorf("found %v, ended %v, %d uses released", w.set.Find(r.ID()), w.life.ended, w.released.Load())
		}
	})
}

// TestRefuse has a sandbox not take a run: no goroutine and no record is left.
func TestRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.sandbox.New(t.Context(), Order{Request: sandbox.RunRequest{Argv: []string{"program"}}})
		r.Refuse()
		if r.ctx.Err() == nil || w.released.Load() != 0 || len(w.records.runs) != 0 {
			t.Errorf("context %v, %d uses released, records %v", r.ctx.Err(), w.released.Load(), w.records.runs)
		}
	})
}

// TestSet keeps the last runs that ended.
func TestSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var ids []string
		for range keepEnded + 1 {
			r := w.mustBegin(t, time.Minute)
			w.guest.events <- guestapi.Event{End: &guestapi.End{Status: guestapi.EndOK}}
			if _, err := r.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			ids = append(ids, r.ID())
		}
		synctest.Wait()
		if w.set.Find(ids[0]) != nil || w.set.Find(ids[1]) == nil || w.set.Find(ids[keepEnded]) == nil {
			t.Errorf("found: %v, %v, %v", w.set.Find(ids[0]), w.set.Find(ids[1]), w.set.Find(ids[keepEnded]))
		}
	})
}
