package engine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
