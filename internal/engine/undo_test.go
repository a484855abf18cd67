package engine

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/snapshot"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// mustBeClean checks that no snapshot is left, on record or with the driver.
func (k *keptSnapshots) mustBeClean(t *testing.T, e *Engine) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	recs, err := e.store.Snapshots(t.Context(), "")
	if err != nil || len(recs) != 0 || len(k.of) != 0 {
		t.Errorf("left are the records %+v, %v, and the states %v", recs, err, k.of)
	}
}

func (k *keptSnapshots) rollbacks() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.rolls)
}

// TestRollbackOnFailure undoes runs that fail, and no others.
func TestRollbackOnFailure(t *testing.T) {
	for _, tt := range []struct {
		name    string
		argv    []string
		verdict sandbox.VerdictCode
		stop    bool // by its caller
	}{
		{"OK", []string{"print", "x"}, sandbox.OK, false},
		{"Failed", []string{"exit", "3"}, sandbox.Failed, false},
		{"Timeout", []string{"sleep", "1h"}, sandbox.Timeout, false},
		{"Stopped", []string{"say", "5"}, sandbox.Cancelled, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, ctx := newWorld(), t.Context()
				kept, options := keeping(w)
				e := openWorld(t, w, t.TempDir(), options)
				s := e.mustCreate(t, sandbox.CreateRequest{})
				before, err := e.TakeSnapshot(ctx, alice, s.ID, "kept")
				if err != nil {
					t.Fatal(err)
				}
				started, err := e.Start(ctx, alice, sandbox.RunRequest{SandboxID: s.ID, Argv: tt.argv, Timeout: time.Minute, RollbackOnFailure: true})
				if err != nil {
					t.Fatal(err)
				}
				if tt.stop {
					if list, err := e.Snapshots(ctx, alice, sandbox.SnapshotFilter{}); err != nil || len(list) != 1 || list[0].ID != before.ID {
						t.Errorf("during the run its owner sees %v, %v", list, err)
					}
					kept.rolling = func() { time.Sleep(30 * time.Second) } // longer than a stuck guest has
					if _, err := e.StopRun(ctx, alice, started.ID); err != nil {
						t.Fatal(err)
					}
				}
				got := e.mustWait(t, started.ID)
				var want *sandbox.Rollback
				rolls := 0
				if tt.verdict != sandbox.OK {
					want, rolls = &sandbox.Rollback{Done: true}, 1
				}
				if diff := cmp.Diff(want, got.Rollback); got.Verdict.Code != tt.verdict || diff != "" || kept.rollbacks() != rolls {
					t.Errorf("%+v, %d rollbacks, -want +got\n%s", got, kept.rollbacks(), diff)
				}
				if rec, err := e.store.Run(ctx, started.ID); err != nil || !cmp.Equal(rec.Rollback, want) || rec.Status != sandbox.RunFinished {
					t.Errorf("on record is %+v, %v", rec, err)
				}
				synctest.Wait()
				if err := e.RemoveSnapshot(ctx, alice, before.ID); err != nil {
					t.Fatal(err)
				}
				kept.mustBeClean(t, e)
				// The sandbox goes on.
				next := e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"print", "x"}})
				checkVerdict(t, e.mustWait(t, next.ID), sandbox.OK, "")
			})
		})
	}
}

// TestRollbackOnFailureRefuses: nothing runs, and nothing is left.
func TestRollbackOnFailureRefuses(t *testing.T) {
	undoable := func(id string, argv ...string) sandbox.RunRequest {
		return sandbox.RunRequest{SandboxID: id, Argv: argv, RollbackOnFailure: true}
	}
	check := func(t *testing.T, e *Engine, req sandbox.RunRequest, want sandbox.Kind) {
		t.Helper()
		r, err := e.Start(t.Context(), alice, req)
		if sandbox.KindOf(err) != want || !strings.Contains(err.Error(), "rollback_on_failure") || sandbox.HintOf(err) == "" {
			t.Errorf("%+v, %v; want %s with the argument and a hint", r, err, want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), nil) // without snapshots
		check(t, e, undoable("", "print", "x"), sandbox.Unsupported)
		if refs := w.refs(); len(refs) > 0 {
			t.Errorf("a refused run made %v", refs)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w, ctx := newWorld(), t.Context()
		kept, options := keeping(w, func(o *Options) { o.Snapshots, o.MaxRunTimeout = snapshot.Limits{Count: 1}, sandbox.Forever })
		e := openWorld(t, w, t.TempDir(), options)
		s := e.mustCreate(t, sandbox.CreateRequest{})
		service := undoable(s.ID, "cat")
		service.Service = &sandbox.ServiceRequest{}
		check(t, e, service, sandbox.Invalid)

		// Another run goes on.
		other := e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"say", "1"}})
		check(t, e, undoable(s.ID, "print", "x"), sandbox.Conflict)
		if _, err := e.StopRun(ctx, alice, other.ID); err != nil {
			t.Fatal(err)
		}
		kept.mustBeClean(t, e)

		// Another run begins while the snapshot is taken, and during the run.
		kept.taking = func() { time.Sleep(time.Second) }
		run := e.mustStart(t, undoable(s.ID, "sleep", "1h"))
		kept.taking = nil
		if _, err := e.Start(ctx, alice, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"print", "x"}}); sandbox.KindOf(err) != sandbox.Conflict || sandbox.HintOf(err) == "" {
			t.Errorf("another run beside it: %v, want conflict", err)
		}
		if _, err := e.StopRun(ctx, alice, run.ID); err != nil {
			t.Fatal(err)
		}
		kept.mustBeClean(t, e)

		// The driver refuses: as with secrets.
		kept.fails = sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "it has secrets"), "use another")
		check(t, e, undoable(s.ID, "print", "x"), sandbox.Unsupported)
		check(t, e, undoable("", "print", "x"), sandbox.Unsupported)
		kept.fails = nil
		kept.mustBeClean(t, e)
		w.only(t) // the sandbox of the refused run is gone

		// The quota is used up.
		if _, err := e.TakeSnapshot(ctx, alice, s.ID, ""); err != nil {
			t.Fatal(err)
		}
		check(t, e, undoable(s.ID, "print", "x"), sandbox.Exhausted)
		// A run that does not start has no snapshot.
		if err := e.RemoveSnapshot(ctx, alice, mustSnapshots(t, e)[0].ID); err != nil {
			t.Fatal(err)
		}
		w.only(t).lacks = "nothing"
		if _, err := e.Start(ctx, alice, undoable(s.ID, "nothing")); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("a program that is not there: %v", err)
		}
		kept.mustBeClean(t, e)
	})
}

func mustSnapshots(t *testing.T, e *Engine) []sandbox.Snapshot {
	t.Helper()
	list, err := e.Snapshots(t.Context(), alice, sandbox.SnapshotFilter{})
	if err != nil || len(list) == 0 {
		t.Fatalf("%v, %v", list, err)
	}
	return list
}

// TestRollbackThatFails: the result says so, and the snapshot is removed.
func TestRollbackThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		kept, options := keeping(w)
		e := openWorld(t, w, t.TempDir(), options)
		s := e.mustCreate(t, sandbox.CreateRequest{})
		r := e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"sleep", "1m"}, Timeout: time.Second, RollbackOnFailure: true})
		kept.mu.Lock()
		kept.fails = sandbox.Errorf(sandbox.Unavailable, "the state does not fit")
		kept.mu.Unlock()
		if got := e.mustWait(t, r.ID); got.Rollback == nil || got.Rollback.Done || !strings.Contains(got.Rollback.Cause, "does not fit") {
			t.Errorf("%+v", got.Rollback)
		}
		kept.mustBeClean(t, e)

		// A sandbox that is stopped is not rolled back.
		kept.fails = nil
		r = e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"sleep", "1m"}, RollbackOnFailure: true})
		if err := e.Stop(t.Context(), alice, s.ID); err != nil {
			t.Fatal(err)
		}
		if got := e.mustWait(t, r.ID); got.Rollback == nil || got.Rollback.Done || !strings.Contains(got.Rollback.Cause, "stopped") {
			t.Errorf("after a stop %+v", got.Rollback)
		}
		kept.mustBeClean(t, e)
	})
}

// TestRollbackAfterCrash: the next server undoes the run, or the sweep removes the
// snapshot of a run that did not begin.
func TestRollbackAfterCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, dir := newWorld(), t.TempDir()
		kept, options := keeping(w, func(o *Options) { o.Detached = true })
		old := openWorld(t, w, dir, options)
		s := old.mustCreate(t, sandbox.CreateRequest{})
		r := old.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"sleep", "1m"}, Timeout: 20 * time.Second, RollbackOnFailure: true})
		if _, err := snapshot.TakeForRun(t.Context(), old.Keeper, alice, stillSandbox{old.live(s.ID)}); err != nil {
			t.Fatal(err)
		}
		old.crash(t)
		e := openWorld(t, w, dir, options)
		e.mustSweep(t)
		if recs, err := e.store.Snapshots(t.Context(), ""); err != nil || len(recs) != 1 || !recs[0].Needed {
			t.Fatalf("after a sweep %+v, %v; want the snapshot of the run", recs, err)
		}
		got := e.mustWait(t, r.ID)
		if got.Verdict.Code != sandbox.Timeout || got.Rollback == nil || !got.Rollback.Done || kept.rollbacks() != 1 {
			t.Errorf("%+v, %d rollbacks", got, kept.rollbacks())
		}
		kept.mustBeClean(t, e)
	})
}

// A stillSandbox takes snapshots at any time.
type stillSandbox struct{ *liveSandbox }

func (b stillSandbox) Still(ctx context.Context, do func(context.Context, driver.Box) error) error {
	return do(ctx, b.drv)
}

// TestSnapshotsAtOnce: of two snapshots at once, only one may pass the quota.
func TestSnapshotsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ctx := newWorld(), t.Context()
		kept, options := keeping(w, func(o *Options) { o.Snapshots = snapshot.Limits{Bytes: 15} })
		e := openWorld(t, w, t.TempDir(), options)
		a, b := e.mustCreate(t, sandbox.CreateRequest{}), e.mustCreate(t, sandbox.CreateRequest{})
		held := make(chan struct{})
		kept.taking = func() { <-held }
		first := make(chan error)
		go func() { first <- second1(e.TakeSnapshot(ctx, alice, a.ID, "")) }()
		synctest.Wait()
		if _, err := e.TakeSnapshot(ctx, alice, b.ID, ""); sandbox.KindOf(err) != sandbox.Exhausted || !strings.Contains(err.Error(), "being made") || sandbox.HintOf(err) == "" {
			t.Errorf("a second one: %v, want exhausted", err)
		}
		close(held)
		if err := <-first; err != nil {
			t.Errorf("the first: %v", err)
		}
		kept.taking = nil
		if _, err := e.TakeSnapshot(ctx, alice, b.ID, ""); sandbox.KindOf(err) != sandbox.Exhausted || strings.Contains(err.Error(), "being made") {
			t.Errorf("with 20 of 15 bytes: %v", err)
		}
		if len(mustSnapshots(t, e)) != 1 || len(kept.of) != 1 {
			t.Errorf("states %v", kept.of)
		}
		// Another principal has a quota of its own.
		own, err := e.Create(ctx, bob, sandbox.CreateRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.TakeSnapshot(ctx, bob, own.ID, ""); err != nil {
			t.Error(err)
		}
	})
}

// TestKeptSnapshotQuota: the bytes are compared where they are recorded.
func TestKeptSnapshotQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ctx := newWorld(), t.Context()
		_, options := keeping(w)
		e := openWorld(t, w, t.TempDir(), options)
		var all []store.Snapshot
		for range 2 {
			r := store.Snapshot{Principal: alice, Owner: e.owner.ID(), Driver: e.name}
			r.ID, r.State = sandbox.NewSnapshotID(), sandbox.SnapshotMaking
			if err := e.store.AddSnapshot(ctx, &r, 2, 15); err != nil {
				t.Fatal(err)
			}
			r.Bytes = 10
			all = append(all, r)
		}
		if err := e.store.KeptSnapshot(ctx, all[0], 15); err != nil {
			t.Fatal(err)
		}
		if err := e.store.KeptSnapshot(ctx, all[1], 15); sandbox.KindOf(err) != sandbox.Exhausted {
			t.Errorf("20 of 15 bytes: %v", err)
		}
	})
}
