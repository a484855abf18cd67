package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/hibernation"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/usage"
)

// Usage is what setCPU set.
func (b *worldBox) Usage(context.Context) (driver.Usage, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return driver.Usage{CPU: b.cpu, Memory: 1 << 20}, nil
}

// TestLoads measures a principal's own sandboxes only.
func TestLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), nil)
		s := e.mustCreate(t, sandbox.CreateRequest{})
		w.only(t).setCPU(3 * time.Second)
		want := map[string]sandbox.Load{s.ID: {CPU: 3 * time.Second, MemoryBytes: 1 << 20}}
		if diff := cmp.Diff(want, e.Loads(context.Background(), alice)); diff != "" {
			t.Error(diff)
		}
		if got := e.Loads(context.Background(), "token:other"); len(got) > 0 {
			t.Errorf("another principal sees %v", got)
		}
		if err := e.Stop(context.Background(), alice, s.ID); err != nil {
			t.Fatal(err)
		}
		if got := e.Loads(context.Background(), alice); len(got) > 0 {
			t.Errorf("after the stop: %v", got)
		}
	})
}

func (b *worldBox) setCPU(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cpu = d
}

func (e *Engine) mustUsage(tb testing.TB, p sandbox.Principal) usage.Amounts {
	tb.Helper()
	rows, err := e.store.Usage(context.Background(), usage.Query{Principals: []sandbox.Principal{p}})
	if err != nil || len(rows) > 1 {
		tb.Fatalf("usage of %s: %v, %v", p, rows, err)
	}
	if len(rows) == 0 {
		return usage.Amounts{}
	}
	return rows[0].Amounts
}

// TestMetering follows a detached sandbox over two servers, of which the first is
// killed, to its stop.
func TestMetering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, dir := newWorld(), t.TempDir()
		change := func(o *Options) { o.Detached, o.UsageLabel = true, "project" }
		e := openWorld(t, w, dir, change)
		ctx, begun := context.Background(), time.Now()
		s := e.mustCreate(t, sandbox.CreateRequest{
			Labels: map[string]string{"project": "red", "other": "x"},
			Limits: sandbox.Limits{MemoryBytes: 1 << 30, Idle: 24 * time.Hour, Lifetime: 24 * time.Hour},
		})
		check := func(when string, cpu time.Duration, runs int64, runTime time.Duration) {
			t.Helper()
			lasted := time.Since(begun)
			want := usage.Amounts{
				Sandboxes: 1, SandboxMillis: lasted.Milliseconds(), MemoryKiBSeconds: 1 << 20 * lasted.Milliseconds() / 1000,
				CPUMillis: cpu.Milliseconds(), Runs: runs, RunMillis: runTime.Milliseconds(),
			}
			if diff := cmp.Diff(want, e.mustUsage(t, alice)); diff != "" {
				t.Errorf("%s: -want +got\n%s", when, diff)
			}
			if got := e.mustUsage(t, "bob"); !got.IsZero() {
				t.Errorf("%s: another principal used %+v", when, got)
			}
		}
		time.Sleep(time.Minute)
		e.mustSweep(t)
		check("after a minute", 0, 0, 0)

		e.mustWait(t, e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"sleep", "10s"}}).ID)
		if got := e.mustUsage(t, alice); got.Runs != 1 || got.RunMillis != 10_000 {
			t.Errorf("a run that has ended is not counted: %+v", got)
		}
		w.only(t).setCPU(3 * time.Second)
		e.mustSweep(t)
		check("after a run", 3*time.Second, 1, 10*time.Second)
		e.mustSweep(t)
		check("after another sweep", 3*time.Second, 1, 10*time.Second)

		e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"sleep", "1h"}, Timeout: 10 * time.Minute})
		time.Sleep(time.Minute)
		w.only(t).setCPU(8 * time.Second)
		e.crash(t)
		time.Sleep(2 * time.Minute)
		e = openWorld(t, w, dir, change)
		e.mustSweep(t)
		check("taken over from a killed server", 8*time.Second, 1, 10*time.Second)
		time.Sleep(time.Minute)
		w.only(t).setCPU(9 * time.Second)
		if err := e.Stop(ctx, alice, s.ID); err != nil {
			t.Fatal(err)
		}
		check("stopped", 9*time.Second, 2, 4*time.Minute+10*time.Second)
		time.Sleep(time.Hour)
		e.mustSweep(t)
		lasted := e.mustUsage(t, alice)
		rows, err := e.store.Usage(ctx, usage.Query{By: []usage.Column{usage.ByLabel}})
		if diff := cmp.Diff([]usage.Row{{Label: "red", Amounts: lasted}}, rows); err != nil || diff != "" {
			t.Errorf("by label: %v, -want +got\n%s", err, diff)
		}
		if want := (5*time.Minute + 10*time.Second).Milliseconds(); lasted.SandboxMillis != want {
			t.Errorf("the sandbox is counted for %d ms, want %d", lasted.SandboxMillis, want)
		}
	})
}

// TestMeteringAttached: the time of an attached sandbox counts to its last use if its
// process was killed, because its end was not observed.
func TestMeteringAttached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, dir := newWorld(), t.TempDir()
		e := openWorld(t, w, dir, nil)
		s := e.mustCreate(t, sandbox.CreateRequest{})
		time.Sleep(30 * time.Second)
		e.mustWait(t, e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"sleep", "10s"}}).ID)
		e.crash(t)
		w.remove(w.only(t))
		time.Sleep(5 * time.Hour)
		e = openWorld(t, w, dir, nil)
		e.mustSweep(t)
		if got := e.mustUsage(t, alice); got.SandboxMillis != 40_000 || got.Runs != 1 || got.Sandboxes != 1 {
			t.Errorf("counted %+v, want 40 seconds", got)
		}
	})
}

// LastUsage is what gone boxes had used.
func (d worldDriver) LastUsage(context.Context, string) (driver.Usage, error) {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	return driver.Usage{CPU: d.w.ended}, nil
}

// TestMeteringEnd counts the end of a box that is stopped, and the end of a box that dies
// without a server.
func TestMeteringEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, dir := newWorld(), t.TempDir()
		change := func(o *Options) { o.Detached = true }
		e := openWorld(t, w, dir, change)
		used := func(want time.Duration) {
			t.Helper()
			if got := e.mustUsage(t, alice); got.CPUMillis != want.Milliseconds() {
				t.Errorf("counted %d ms, want %v", got.CPUMillis, want)
			}
		}
		s := e.mustCreate(t, sandbox.CreateRequest{})
		b := w.only(t)
		b.setCPU(3 * time.Second)
		w.destroying = func() { b.setCPU(4 * time.Second) }
		if err := e.Stop(context.Background(), alice, s.ID); err != nil {
			t.Fatal(err)
		}
		used(4 * time.Second)

		s = e.mustCreate(t, sandbox.CreateRequest{})
		w.only(t).setCPU(time.Second)
		e.mustSweep(t)
		used(5 * time.Second)
		e.crash(t)
		w.remove(w.only(t))
		w.ended = 2 * time.Second
		e = openWorld(t, w, dir, change)
		e.mustSweep(t)
		used(6 * time.Second)
		rec, err := e.store.Sandbox(context.Background(), s.ID)
		if want := "the sandbox had died when a server took it over"; err != nil || rec.Cause != want {
			t.Errorf("its cause is %q, %v, want %q", rec.Cause, err, want)
		}
		e.mustSweep(t)
		used(6 * time.Second)
	})
}

// TestMeteringSaved: a sweep counts a box once after it was saved, and then asks the driver
// again when it was woken. Its time on the disk counts.
func TestMeteringSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), saving(w, hibernation.Settings{After: 5 * time.Minute}))
		s := e.mustCreate(t, sandbox.CreateRequest{})
		b := w.only(t)
		check := func(when string, cpu, lasted time.Duration) {
			t.Helper()
			e.mustSweep(t)
			got := e.mustUsage(t, alice)
			if got.CPUMillis != cpu.Milliseconds() || got.SandboxMillis != lasted.Milliseconds() {
				t.Errorf("%s: counted %d and %d ms, want %v and %v", when, got.CPUMillis, got.SandboxMillis, cpu, lasted)
			}
		}
		b.setCPU(2 * time.Second)
		time.Sleep(6 * time.Minute)
		check("by the sweep that saved it", 2*time.Second, 6*time.Minute)
		if !b.isSaved() {
			t.Fatal("it is not saved")
		}
		b.setCPU(9 * time.Second)
		time.Sleep(time.Minute)
		check("while it was on the disk", 2*time.Second, 7*time.Minute)
		if err := e.Wake(context.Background(), alice, s.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		check("after it was woken", 9*time.Second, 8*time.Minute)
		b.setCPU(10 * time.Second)
		time.Sleep(6 * time.Minute)
		check("by the sweep that saved it again", 10*time.Second, 14*time.Minute)
	})
}
