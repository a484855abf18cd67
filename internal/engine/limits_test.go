package engine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/engine/hibernation"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
	"github.com/glovebox-dev/glovebox/internal/usage"
)

func (e *Engine) mustLimit(tb testing.TB, l store.AccountLimit) {
	tb.Helper()
	if err := e.store.SetLimits(context.Background(), []store.AccountLimit{l}); err != nil {
		tb.Fatal(err)
	}
}

// refused checks that err is the refusal at a limit, until a time.
func refused(tb testing.TB, err error, text string, retry time.Duration) {
	tb.Helper()
	if !errors.Is(err, sandbox.Exhausted) || !strings.Contains(err.Error(), text) {
		tb.Errorf("got %v, want a refusal with %q", err, text)
		return
	}
	if got := sandbox.RetryAfterOf(err); got != retry {
		tb.Errorf("%v: retry after %v, want %v", err, got, retry)
	}
	if !strings.Contains(sandbox.HintOf(err), "glovebox limit set") {
		tb.Errorf("%v: hint %q", err, sandbox.HintOf(err))
	}
}

// TestLimitOfSandboxes: the last allowed sandbox can be made, one more cannot, and
// another principal is not affected. Changes need no restart.
func TestLimitOfSandboxes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := openWorld(t, newWorld(), t.TempDir(), nil)
		ctx := context.Background()
		e.mustLimit(t, store.AccountLimit{Principal: alice, Limit: usage.LimitSandboxes, Value: 1})
		s := e.mustCreate(t, sandbox.CreateRequest{})
		_, err := e.Create(ctx, alice, sandbox.CreateRequest{})
		refused(t, err, "your limit sandboxes is 1, and 1 is used", 0)
		_, err = e.Start(ctx, alice, sandbox.RunRequest{Argv: []string{"sleep", "1s"}})
		refused(t, err, "your limit sandboxes is 1, and 1 is used", 0)
		e.mustWait(t, e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"sleep", "1s"}}).ID)
		if _, err := e.Create(ctx, "bob", sandbox.CreateRequest{}); err != nil {
			t.Errorf("another principal: %v", err)
		}
		if err := e.Stop(ctx, alice, s.ID); err != nil {
			t.Fatal(err)
		}
		e.mustCreate(t, sandbox.CreateRequest{})
		e.mustLimit(t, store.AccountLimit{Principal: alice, Limit: usage.LimitSandboxes, Value: 2})
		e.mustCreate(t, sandbox.CreateRequest{})
	})
}

// TestLimitOfMemoryAndCPUs: a sandbox may use exactly what others leave. A refused one
// leaves nothing and evicts none.
func TestLimitOfMemoryAndCPUs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := openWorld(t, newWorld(), t.TempDir(), nil)
		ctx := context.Background()
		e.mustLimit(t, store.AccountLimit{Principal: alice, Limit: usage.LimitMemory, Value: 3 << 30})
		e.mustLimit(t, store.AccountLimit{Principal: alice, Limit: usage.LimitCPUs, Value: usage.Milli(1.5)})
		asks := func(gib int64, cpus float64) sandbox.CreateRequest {
			return sandbox.CreateRequest{Limits: sandbox.Limits{MemoryBytes: gib << 30, CPUs: cpus}}
		}
		e.mustCreate(t, asks(1, 0.5))
		_, err := e.Create(ctx, alice, asks(3, 0.5))
		refused(t, err, "your limit memory is 3 GiB, and 1 GiB is used; the sandbox asks for 3 GiB", 0)
		_, err = e.Start(ctx, alice, sandbox.RunRequest{New: asks(1, 1.1), Argv: []string{"sleep", "1s"}})
		refused(t, err, "your limit cpus is 1.5, and 0.5 is used; the sandbox asks for 1.1", 0)
		last := e.mustCreate(t, asks(2, 1))
		_, err = e.Create(ctx, alice, asks(1, 0.5))
		refused(t, err, "your limit memory is 3 GiB, and 3 GiB is used", 0)
		if err := e.Stop(ctx, alice, last.ID); err != nil {
			t.Fatal(err)
		}
		e.mustCreate(t, asks(2, 1))
		list, err := e.List(ctx, alice)
		if err != nil || len(list) != 3 { // with the stopped one
			t.Errorf("%d sandboxes, %v", len(list), err)
		}
	})
}

// TestLimitOfWorkspaceBytes: at the limit, no program starts with a workspace of the
// group's members, and nothing is written to one, until files are removed. Sandboxes
// without a workspace go on.
func TestLimitOfWorkspaceBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, w := openSpaces(t, nil)
		ctx := context.Background()
		if err := e.store.AddMembers(ctx, "team", []sandbox.Principal{alice, "bob"}); err != nil {
			t.Fatal(err)
		}
		e.mustLimit(t, store.AccountLimit{Group: "team", Limit: usage.LimitWorkspaceBytes, Value: mib})
		in := func(p sandbox.Principal, name string) error {
			_, err := e.Start(ctx, p, sandbox.RunRequest{New: sandbox.CreateRequest{Workspace: name}, Argv: []string{"print", "x"}})
			return err
		}
		s := e.mustCreate(t, sandbox.CreateRequest{Workspace: "first"})
		again := func() error {
			r, err := e.Start(ctx, alice, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"print", "x"}})
			if err == nil {
				e.mustWait(t, r.ID)
			}
			return err
		}
		if err := again(); err != nil {
			t.Fatal(err)
		}
		w.spaces.space("alice-first").grow(mib)
		time.Sleep(10 * time.Second)
		if err := again(); err != nil { // it finds out
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		full := "group team's limit workspace-bytes is 1 MiB, and 1 MiB is used"
		refused(t, again(), full, 0)
		refused(t, in("bob", "his"), full, 0)
		_, err := e.PutFile(ctx, "alice-first", "f", strings.NewReader("x"), 1)
		refused(t, err, full, 0)
		if err := in("carol", "hers"); err != nil {
			t.Errorf("another principal: %v", err)
		}
		e.mustWait(t, e.mustStart(t, sandbox.RunRequest{Argv: []string{"print", "x"}}).ID)
		w.spaces.space("alice-first").grow(-1)
		time.Sleep(10 * time.Second)
		if err := again(); err != nil {
			t.Errorf("after a file was removed: %v", err)
		}
		if err := in("bob", "his"); err != nil {
			t.Errorf("the other member then: %v", err)
		}
	})
}

// TestLimitOfGroup: creations of all members count, until the next hour.
func TestLimitOfGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := openWorld(t, newWorld(), t.TempDir(), nil)
		ctx := context.Background()
		if err := e.store.AddMembers(ctx, "team", []sandbox.Principal{alice, "bob"}); err != nil {
			t.Fatal(err)
		}
		e.mustLimit(t, store.AccountLimit{Group: "team", Limit: usage.LimitCreations, Value: 2})
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(80 * time.Minute)))
		e.mustCreate(t, sandbox.CreateRequest{})
		if _, err := e.Create(ctx, "bob", sandbox.CreateRequest{}); err != nil {
			t.Fatal(err)
		}
		for _, p := range []sandbox.Principal{alice, "bob"} {
			_, err := e.Create(ctx, p, sandbox.CreateRequest{})
			refused(t, err, "group team's limit creations-per-hour is 2, and 2 is used", 40*time.Minute)
		}
		time.Sleep(40 * time.Minute)
		e.mustCreate(t, sandbox.CreateRequest{})
	})
}

// TestLimitOfTime: at a limit of time, no program starts, and the next sweep stops the
// sandboxes of the principal, but not those of others.
func TestLimitOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), nil)
		ctx := context.Background()
		time.Sleep(time.Until(time.Now().Truncate(24 * time.Hour).Add(47 * time.Hour)))
		day := time.Hour // is left of the day
		begun := time.Now()
		s := e.mustCreate(t, sandbox.CreateRequest{})
		other, err := e.Create(ctx, "bob", sandbox.CreateRequest{})
		if err != nil {
			t.Fatal(err)
		}
		e.mustLimit(t, store.AccountLimit{Principal: alice, Limit: usage.LimitSandboxDay, Value: time.Minute.Milliseconds()})
		time.Sleep(50 * time.Second)
		e.mustSweep(t)
		e.mustWait(t, e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"sleep", "20s"}}).ID)
		e.mustSweep(t)
		synctest.Wait()
		left := day - time.Since(begun)
		_, err = e.Start(ctx, alice, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"sleep", "1s"}})
		refused(t, err, "your limit sandbox-time-per-day is 1m, and 1m10s is used", left)
		_, err = e.Create(ctx, alice, sandbox.CreateRequest{})
		refused(t, err, "sandbox-time-per-day", left)
		got, err := e.Get(ctx, alice, s.ID)
		if err != nil || got.State != sandbox.Stopped || !strings.Contains(got.Cause, "was stopped at a limit: your limit sandbox-time-per-day") {
			t.Errorf("after the sweep: %s, %q, %v", got.State, got.Cause, err)
		}
		if got, err := e.Get(ctx, "bob", other.ID); err != nil || got.State != sandbox.Running {
			t.Errorf("the sandbox of another principal: %s, %v", got.State, err)
		}
		time.Sleep(left)
		e.mustCreate(t, sandbox.CreateRequest{})
	})
}

// TestLimitOfSavedBytes: at the limit, a request to hibernate fails, and a sandbox that is
// unused or at its end rests in memory. A sandbox that wakes makes room.
func TestLimitOfSavedBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), saving(w, hibernation.Settings{After: 5 * time.Minute}))
		ctx := context.Background()
		e.mustLimit(t, store.AccountLimit{Principal: alice, Limit: usage.LimitSavedBytes, Value: 10})
		first := e.mustCreate(t, sandbox.CreateRequest{})
		if err := e.Hibernate(ctx, alice, first.ID); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := e.mustGet(t, first.ID); got.Hibernation.Bytes != 10 {
			t.Fatalf("below the limit: %+v", got.Hibernation)
		}
		second := e.mustCreate(t, sandbox.CreateRequest{}) // the limit bounds nothing else
		refused(t, e.Hibernate(ctx, alice, second.ID), "your limit saved-bytes is 10 B, and 10 B is used", 0)
		if got := e.mustGet(t, second.ID); got.State != sandbox.Running {
			t.Errorf("after a request that was refused it is %s", got.State)
		}
		at := e.mustCreate(t, sandbox.CreateRequest{TTL: time.Minute, AtEnd: sandbox.AtEndHibernate})
		time.Sleep(2 * time.Minute)
		if got := e.mustGet(t, at.ID); got.State != sandbox.Hibernated || !got.Hibernation.Saved.IsZero() || !strings.Contains(got.Hibernation.Error, "saved-bytes") {
			t.Errorf("at its end: %s, %+v", got.State, got.Hibernation)
		}
		time.Sleep(4 * time.Minute)
		e.mustSweep(t)
		if got := e.mustGet(t, second.ID); got.State != sandbox.Running || !strings.Contains(got.Hibernation.Error, "saved-bytes") {
			t.Errorf("unused: %s, %+v", got.State, got.Hibernation)
		}
		if got := e.mustGet(t, first.ID); got.State != sandbox.Hibernated || got.Hibernation.Bytes != 10 {
			t.Errorf("the saved one: %s, %+v", got.State, got.Hibernation)
		}
		if err := e.Wake(ctx, alice, first.ID); err != nil {
			t.Fatal(err)
		}
		if err := e.Hibernate(ctx, alice, second.ID); err != nil {
			t.Errorf("when there was room: %v", err)
		}
	})
}

// TestLimitOfSavedBytesOfGroup: the states of all members count.
func TestLimitOfSavedBytesOfGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), saving(w, hibernation.Settings{}))
		ctx := context.Background()
		if err := e.store.AddMembers(ctx, "team", []sandbox.Principal{alice, "bob"}); err != nil {
			t.Fatal(err)
		}
		e.mustLimit(t, store.AccountLimit{Group: "team", Limit: usage.LimitSavedBytes, Value: 10})
		first := e.mustCreate(t, sandbox.CreateRequest{})
		if err := e.Hibernate(ctx, alice, first.ID); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for p, exceeds := range map[sandbox.Principal]bool{"bob": true, "carol": false} {
			s, err := e.Create(ctx, p, sandbox.CreateRequest{})
			if err != nil {
				t.Fatal(err)
			}
			err = e.Hibernate(ctx, p, s.ID)
			if exceeds {
				refused(t, err, "group team's limit saved-bytes is 10 B, and 10 B is used", 0)
			} else if err != nil {
				t.Errorf("%s: %v", p, err)
			}
		}
	})
}

// TestLimitOfSnapshotBytes: at the limit, no snapshot is taken until one is deleted.
func TestLimitOfSnapshotBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ctx := newWorld(), context.Background()
		_, options := keeping(w)
		e := openWorld(t, w, t.TempDir(), options)
		s := e.mustCreate(t, sandbox.CreateRequest{})
		first, err := e.TakeSnapshot(ctx, alice, s.ID, "first")
		if err != nil {
			t.Fatal(err)
		}
		e.mustLimit(t, store.AccountLimit{Principal: alice, Limit: usage.LimitSnapshotBytes, Value: first.Bytes})
		_, err = e.TakeSnapshot(ctx, alice, s.ID, "second")
		refused(t, err, "your limit snapshot-bytes is", 0)
		if err := e.RemoveSnapshot(ctx, alice, first.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := e.TakeSnapshot(ctx, alice, s.ID, "second"); err != nil {
			t.Errorf("after the deletion: %v", err)
		}
	})
}
