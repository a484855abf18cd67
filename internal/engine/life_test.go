package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/engine/run"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const alice sandbox.Principal = "alice"

// mallory is another principal than alice.
const mallory sandbox.Principal = "mallory"

func (e *Engine) mustCreate(tb testing.TB, req sandbox.CreateRequest) sandbox.Sandbox {
	tb.Helper()
	s, err := e.Create(context.Background(), alice, req)
	if err != nil {
		tb.Fatalf("create: %v", err)
	}
	return s
}

func (e *Engine) mustStart(tb testing.TB, req sandbox.RunRequest) sandbox.Run {
	tb.Helper()
	r, err := e.Start(context.Background(), alice, req)
	if err != nil {
		tb.Fatalf("start: %v", err)
	}
	return r
}

func (e *Engine) mustWait(tb testing.TB, id string) sandbox.Run {
	tb.Helper()
	r, err := e.Wait(context.Background(), alice, id)
	if err != nil {
		tb.Fatalf("wait: %v", err)
	}
	if r.Status != sandbox.RunFinished || r.Verdict.Code == "" || r.Ended.IsZero() {
		tb.Fatalf("wait returned a run that has not finished: %+v", r)
	}
	return r
}

func (e *Engine) mustGet(tb testing.TB, id string) sandbox.Sandbox {
	tb.Helper()
	s, err := e.Get(context.Background(), alice, id)
	if err != nil {
		tb.Fatalf("get: %v", err)
	}
	return s
}

func (e *Engine) mustSweep(tb testing.TB) {
	tb.Helper()
	if err := e.Sweep(context.Background()); err != nil {
		tb.Fatalf("sweep: %v", err)
	}
}

func checkVerdict(tb testing.TB, r sandbox.Run, want sandbox.VerdictCode, cause string) {
	tb.Helper()
	if r.Verdict.Code != want || !strings.Contains(r.Verdict.Cause, cause) {
		tb.Errorf("verdict %+v, want %s with %q", r.Verdict, want, cause)
	}
}

func TestIdleLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), nil)
		s := e.mustCreate(t, sandbox.CreateRequest{Limits: sandbox.Limits{Idle: 10 * time.Second}})
		if want := s.Used.Add(10 * time.Second); !s.Expires.Equal(want) {
			t.Errorf("expires %v, want %v", s.Expires, want)
		}
		time.Sleep(9 * time.Second)
		// A run longer than the idle limit keeps it, and the limit counts from
		// its end.
		r := e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"sleep", "25s"}})
		checkVerdict(t, e.mustWait(t, r.ID), sandbox.OK, "")
		time.Sleep(9 * time.Second)
		if got := e.mustGet(t, s.ID); got.State != sandbox.Running {
			t.Fatalf("state %s, 9 s after a run", got.State)
		}
		time.Sleep(2 * time.Second)
		got := e.mustGet(t, s.ID)
		if got.State != sandbox.Stopped || !strings.Contains(got.Cause, "10s") || len(w.refs()) != 0 {
			t.Errorf("%s (%q), boxes %v, 11 s after a run", got.State, got.Cause, w.refs())
		}
		_, err := e.Start(t.Context(), alice, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"x"}})
		if !errors.Is(err, sandbox.Conflict) || sandbox.HintOf(err) == "" {
			t.Errorf("run in a stopped sandbox: %v", err)
		}
	})
}

func TestLifetimeEndsARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), nil)
		s := e.mustCreate(t, sandbox.CreateRequest{Limits: sandbox.Limits{Lifetime: time.Minute}})
		begun := time.Now()
		r := e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"sleep", "1h"}, Timeout: 5 * time.Minute})
		checkVerdict(t, e.mustWait(t, r.ID), sandbox.SandboxLost, "lifetime of 1m0s")
		if took := time.Since(begun); took < 59*time.Second || took > 61*time.Second {
			t.Errorf("ended after %v", took)
		}
		synctest.Wait()
		if len(w.refs()) != 0 {
			t.Errorf("boxes %v", w.refs())
		}
	})
}

func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), nil)
		s := e.mustCreate(t, sandbox.CreateRequest{})
		b := w.only(t)
		expect := func(paused bool, pauses, resumes int) {
			t.Helper()
			synctest.Wait()
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.paused != paused || b.pauses != pauses || b.resumes != resumes {
				t.Errorf("paused %v, %d pauses, %d resumes; want %v, %d, %d", b.paused, b.pauses, b.resumes, paused, pauses, resumes)
			}
		}
		time.Sleep(40 * time.Millisecond)
		expect(false, 0, 0)
		time.Sleep(20 * time.Millisecond)
		expect(true, 1, 0)

		// Two runs and a read that overlap: it sleeps after the last.
		a := e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"sleep", "1s"}})
		time.Sleep(500 * time.Millisecond)
		c := e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"sleep", "1s"}})
		e.mustWait(t, a.ID)
		time.Sleep(100 * time.Millisecond)
		expect(false, 1, 1)
		if err := e.WriteFile(t.Context(), alice, s.ID, "f", strings.NewReader("x"), false); err != nil {
			t.Fatal(err)
		}
		f, _, err := e.ReadFile(t.Context(), alice, s.ID, "f", 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		e.mustWait(t, c.ID)
		time.Sleep(time.Second)
		expect(false, 1, 1) // a stream is open
		for range 2 {
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		expect(true, 2, 1)
		// The use is on record, for other processes.
		rec, err := e.store.Sandbox(t.Context(), s.ID)
		if err != nil || time.Since(rec.Used) > 1100*time.Millisecond {
			t.Errorf("recorded use %v ago, %v", time.Since(rec.Used), err)
		}
		if err := e.Stop(t.Context(), alice, s.ID); err != nil {
			t.Fatal(err)
		}
	})
}

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), nil)
		s := e.mustCreate(t, sandbox.CreateRequest{})
		begun := time.Now()
		r := e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"sleep", "1h"}, Timeout: 3 * time.Second})
		got := e.mustWait(t, r.ID)
		checkVerdict(t, got, sandbox.Timeout, "3s")
		if took := time.Since(begun); took != 3*time.Second || got.ExitCode != nil {
			t.Errorf("after %v, exit code %v", took, got.ExitCode)
		}

		// A guest that does not answer costs the sandbox, not the verdict.
		b := w.only(t)
		b.mu.Lock()
		b.deaf = true
		b.mu.Unlock()
		r = e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"cat"}, KeepStdin: true, Timeout: 3 * time.Second})
		begun = time.Now()
		time.Sleep(time.Second)
		got = e.mustWait(t, r.ID)
		checkVerdict(t, got, sandbox.Timeout, "3s")
		if took := time.Since(begun); took > 3*time.Second+run.KillTimeout+run.EndTimeout {
			t.Errorf("took %v", took)
		}
		synctest.Wait()
		if got := e.mustGet(t, s.ID); got.State != sandbox.Stopped || !strings.Contains(got.Cause, "did not answer") {
			t.Errorf("%s (%q)", got.State, got.Cause)
		}
	})
}

// TestStuckGuestKeepsNoRun has a guest answer nothing, past every context, when
// a run is to be ended.
func TestStuckGuestKeepsNoRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), nil)
		begun := time.Now()
		r := e.mustStart(t, sandbox.RunRequest{Argv: []string{"sleep", "1h"}, Timeout: 3 * time.Second})
		b := w.only(t)
		b.mu.Lock()
		b.deaf, b.stuck = true, true
		b.mu.Unlock()
		checkVerdict(t, e.mustWait(t, r.ID), sandbox.Timeout, "3s")
		if took := time.Since(begun); took > 3*time.Second+run.KillTimeout+run.EndTimeout {
			t.Errorf("took %v", took)
		}
		if refs := w.refs(); len(refs) != 0 {
			t.Errorf("boxes %v are left", refs)
		}
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		dir := t.TempDir()
		e, other := openWorld(t, w, dir, nil), openWorld(t, w, dir, nil)
		r := e.mustStart(t, sandbox.RunRequest{Argv: []string{"sleep", "5s"}})
		for name, e := range map[string]*Engine{"Here": e, "FromAnotherProcess": other} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			got, err := e.Wait(ctx, alice, r.ID)
			if !errors.Is(err, context.DeadlineExceeded) || got.ID != r.ID || got.Status != sandbox.RunRunning || got.Verdict.Code != "" {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
			err = e.Follow(ctx, alice, r.ID, func(sandbox.StreamName, []byte) error { return nil })
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: follow: %v", name, err)
			}
			cancel()
		}
		for _, budget := range []int{-1, request.MaxOutput + 1} {
			if _, err := e.Output(t.Context(), alice, r.ID, budget); !errors.Is(err, sandbox.Invalid) {
				t.Errorf("budget %d: %v", budget, err)
			}
		}
		for name, e := range map[string]*Engine{"Here": e, "FromAnotherProcess": other} {
			checkVerdict(t, e.mustWait(t, r.ID), sandbox.OK, "")
			// A context that has ended does not hide what is known.
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if got, err := e.Wait(ctx, alice, r.ID); err != nil || got.Status != sandbox.RunFinished {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
		}
	})
}

func TestSandboxDies(t *testing.T) {
	for _, c := range []struct {
		name  string
		kills int
		want  sandbox.VerdictCode
		cause string
	}{
		{"Lost", 0, sandbox.SandboxLost, "died"},
		{"OutOfMemory", 1, sandbox.OutOfMemory, "512 MiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				e := openWorld(t, w, t.TempDir(), nil)
				s := e.mustCreate(t, sandbox.CreateRequest{})
				var runs []sandbox.Run
				for range 3 {
					runs = append(runs, e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"sleep", "20s"}}))
				}
				time.Sleep(time.Second)
				b := w.only(t)
				b.mu.Lock()
				b.kills += c.kills
				b.mu.Unlock()
				b.die()
				for _, r := range runs {
					got := e.mustWait(t, r.ID)
					checkVerdict(t, got, c.want, c.cause)
					if got.ExitCode != nil || got.Verdict.NextStep == "" {
						t.Errorf("%+v", got)
					}
				}
				synctest.Wait()
				got := e.mustGet(t, s.ID)
				if got.State != sandbox.Stopped || !strings.Contains(got.Cause, c.cause) || len(w.refs()) != 0 {
					t.Errorf("%s (%q), boxes %v", got.State, got.Cause, w.refs())
				}
			})
		})
	}
}

func TestSandboxDiesAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), nil)
		s := e.mustCreate(t, sandbox.CreateRequest{})
		time.Sleep(time.Second)
		w.only(t).die()
		_, err := e.Start(t.Context(), alice, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"x"}})
		if err == nil {
			t.Error("a run started in a dead sandbox")
		}
		synctest.Wait()
		if got := e.mustGet(t, s.ID); got.State != sandbox.Stopped || len(w.refs()) != 0 {
			t.Errorf("%s, boxes %v", got.State, w.refs())
		}
	})
}

func TestCreateFails(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(*testing.T, *world, *Engine) error
		want sandbox.Kind
	}{
		{"Driver", func(t *testing.T, w *world, e *Engine) error {
			w.creating = func(context.Context, *driver.Spec) error { return sandbox.Errorf(sandbox.Unsupported, "no") }
			_, err := e.Create(t.Context(), alice, sandbox.CreateRequest{})
			return err
		}, sandbox.Unsupported},
		{"Cancelled", func(t *testing.T, w *world, e *Engine) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			w.creating = func(ctx context.Context, _ *driver.Spec) error { <-ctx.Done(); return ctx.Err() }
			_, err := e.Create(ctx, alice, sandbox.CreateRequest{})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v does not wrap the context's error", err)
			}
			return err
		}, sandbox.Unavailable},
		{"Hangs", func(t *testing.T, w *world, e *Engine) error {
			w.creating = func(ctx context.Context, _ *driver.Spec) error { <-ctx.Done(); return ctx.Err() }
			_, err := e.Create(t.Context(), alice, sandbox.CreateRequest{})
			return err
		}, sandbox.Unavailable},
		{"CancelledAtTheEnd", func(t *testing.T, w *world, e *Engine) error {
			ctx, cancel := context.WithCancel(t.Context())
			w.creating = func(context.Context, *driver.Spec) error { cancel(); return nil }
			_, err := e.Create(ctx, alice, sandbox.CreateRequest{})
			return err
		}, sandbox.Unavailable},
		{"Stopped", func(t *testing.T, w *world, e *Engine) error {
			w.creating = func(ctx context.Context, _ *driver.Spec) error {
				list, err := e.List(ctx, alice)
				if err != nil || len(list) != 1 || list[0].State != sandbox.Starting {
					t.Errorf("list while it starts: %v, %v", list, err)
				}
				go func() {
					if err := e.Stop(t.Context(), alice, list[0].ID); err != nil {
						t.Errorf("stop: %v", err)
					}
				}()
				<-ctx.Done()
				return ctx.Err()
			}
			_, err := e.Create(t.Context(), alice, sandbox.CreateRequest{})
			return err
		}, sandbox.Unavailable},
		{"Receipt", func(t *testing.T, w *world, e *Engine) error {
			w.receipt = func() sandbox.Receipt {
				r := fullReceipt()
				r[1].Enforced = false
				return r
			}
			_, err := e.Create(t.Context(), alice, sandbox.CreateRequest{})
			if !strings.Contains(sandbox.HintOf(err), "--allow-unenforced memory") {
				t.Errorf("hint %q", sandbox.HintOf(err))
			}
			return err
		}, sandbox.Unsupported},
		{"ImplicitWithBadRun", func(t *testing.T, w *world, e *Engine) error {
			w.creating = func(_ context.Context, spec *driver.Spec) error {
				w.box("box-" + spec.ID).lacks = "nothing"
				return nil
			}
			_, err := e.Start(t.Context(), alice, sandbox.RunRequest{Argv: []string{"nothing"}})
			return err
		}, sandbox.Invalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				e := openWorld(t, w, t.TempDir(), nil)
				err := c.do(t, w, e)
				if sandbox.KindOf(err) != c.want {
					t.Errorf("%v is of kind %s, want %s", err, sandbox.KindOf(err), c.want)
				}
				synctest.Wait()
				if len(w.refs()) != 0 {
					t.Errorf("boxes left: %v", w.refs())
				}
				list, err := e.List(t.Context(), alice)
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range list {
					if s.State != sandbox.Stopped {
						t.Errorf("sandbox left: %+v", s)
					}
				}
				e.mustSweep(t)
				w.creating, w.receipt = nil, nil
				e.mustCreate(t, sandbox.CreateRequest{})
			})
		})
	}
}

func TestStopIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), nil)
		s := e.mustCreate(t, sandbox.CreateRequest{})
		b := w.only(t)
		broken := errors.New("broken")
		b.failing = broken
		if err := e.Stop(t.Context(), alice, s.ID); !errors.Is(err, broken) {
			t.Fatalf("stop: %v", err)
		}
		if err := e.Sweep(t.Context()); !errors.Is(err, broken) {
			t.Fatalf("sweep: %v", err)
		}
		b.mu.Lock()
		b.failing = nil
		b.mu.Unlock()
		e.mustSweep(t)
		if len(w.refs()) != 0 {
			t.Errorf("boxes left: %v", w.refs())
		}
		if got := e.mustGet(t, s.ID); got.State != sandbox.Stopped || got.Cause != "the sandbox was stopped on request" {
			t.Errorf("%s (%q)", got.State, got.Cause)
		}
		for range 2 {
			if err := e.Stop(t.Context(), alice, s.ID); err != nil {
				t.Errorf("stop again: %v", err)
			}
		}
	})
}

func TestCloseAttached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		dir := t.TempDir()
		e := openWorld(t, w, dir, nil)
		for range 3 {
			e.mustCreate(t, sandbox.CreateRequest{})
		}
		r := e.mustStart(t, sandbox.RunRequest{Argv: []string{"sleep", "1h"}, Timeout: 5 * time.Minute})
		waited := make(chan sandbox.Run)
		go func() {
			r, _ := e.Wait(context.Background(), alice, r.ID)
			waited <- r
		}()
		synctest.Wait()
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		checkVerdict(t, <-waited, sandbox.SandboxLost, "shut down")
		if len(w.refs()) != 0 {
			t.Errorf("boxes left: %v", w.refs())
		}
		if _, err := e.Create(t.Context(), alice, sandbox.CreateRequest{}); !errors.Is(err, sandbox.Unavailable) {
			t.Errorf("create: %v", err)
		}
		other := openWorld(t, w, dir, nil)
		list, err := other.List(t.Context(), alice)
		if err != nil || len(list) != 4 || slices.ContainsFunc(list, func(s sandbox.Sandbox) bool { return s.State != sandbox.Stopped }) {
			t.Errorf("%+v, %v", list, err)
		}
	})
}

// TestOutputThatCannotBeKept has a run that ends well before it can be killed
// for output that the disk did not take.
func TestOutputThatCannotBeKept(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a directory that is open cannot be removed here")
	}
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		e := openWorld(t, newWorld(), dir, nil)
		s := e.mustCreate(t, sandbox.CreateRequest{})
		if err := os.RemoveAll(filepath.Join(dir, "logs")); err != nil {
			t.Fatal(err)
		}
		r := e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"print", "lost"}})
		checkVerdict(t, e.mustWait(t, r.ID), sandbox.Killed, "could not be kept")
	})
}

func TestOwnership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), nil)
		r := e.mustStart(t, sandbox.RunRequest{Argv: []string{"sleep", "5s"}})
		ctx := t.Context()
		run := func(p sandbox.Principal, sb, run string) map[string]error {
			errs := map[string]error{}
			_, errs["get"] = e.Get(ctx, p, sb)
			errs["stop"] = e.Stop(ctx, p, sb)
			_, errs["start"] = e.Start(ctx, p, sandbox.RunRequest{SandboxID: sb, Argv: []string{"x"}})
			_, _, errs["read"] = e.ReadFile(ctx, p, sb, "f", 0, -1)
			errs["write"] = e.WriteFile(ctx, p, sb, "f", strings.NewReader(""), false)
			_, _, errs["list"] = e.ListFiles(ctx, p, sb, "/", 1)
			_, errs["stat"] = e.StatFile(ctx, p, sb, "f")
			errs["mkdir"] = e.MakeDir(ctx, p, sb, "f")
			_, errs["wait"] = e.Wait(ctx, p, run)
			_, errs["stop run"] = e.StopRun(ctx, p, run)
			_, errs["output"] = e.Output(ctx, p, run, 0)
			_, _, errs["read output"] = e.ReadOutput(ctx, p, run, sandbox.Stdout, 0, 1)
			errs["follow"] = e.Follow(ctx, p, run, func(sandbox.StreamName, []byte) error { return nil })
			errs["input"] = e.SendInput(ctx, p, run, []byte("x"), false)
			errs["resize"] = e.Resize(ctx, p, run, sandbox.TerminalSize{Cols: 1, Rows: 1})
			return errs
		}
		strip := strings.NewReplacer(r.SandboxID, "ID", r.ID, "ID")
		none, noneRun := sandbox.NewID(), sandbox.NewRunID()
		theirs, nothing := run(mallory, r.SandboxID, r.ID), run(mallory, none, noneRun)
		stripNone := strings.NewReplacer(none, "ID", noneRun, "ID")
		for op, err := range theirs {
			other := nothing[op]
			if !errors.Is(err, sandbox.NotFound) || !errors.Is(other, sandbox.NotFound) {
				t.Errorf("%s: %v, and %v", op, err, other)
				continue
			}
			if a, b := strip.Replace(err.Error()), stripNone.Replace(other.Error()); a != b {
				t.Errorf("%s tells what is another's from what is not: %q, %q", op, a, b)
			}
		}
		for op, err := range run("", r.SandboxID, r.ID) {
			if !errors.Is(err, sandbox.Unauthenticated) {
				t.Errorf("%s by nobody: %v", op, err)
			}
		}
		for op, err := range run(alice, "../../etc/passwd\x1b[31m", strings.Repeat("x", 1<<20)) {
			if !errors.Is(err, sandbox.NotFound) || len(err.Error()) > 200 || strings.Contains(err.Error(), "\x1b") {
				t.Errorf("%s of a bad name: %.300v", op, err)
			}
		}
		if list, err := e.List(ctx, mallory); err != nil || len(list) != 0 {
			t.Errorf("mallory's list: %v, %v", list, err)
		}
		checkVerdict(t, e.mustWait(t, r.ID), sandbox.OK, "")
	})
}

// TestRunOfDays: a run may take as long as its sandbox, which the operator may let
// live for more than a day, or for ever. The operator's maximum of runs is refused
// with the bound.
func TestRunOfDays(t *testing.T) {
	for name, life := range map[string]time.Duration{"Week": 7 * 24 * time.Hour, "Forever": sandbox.Forever} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := openWorld(t, newWorld(), t.TempDir(), func(o *Options) {
					o.Defaults, o.MaxRunTimeout = sandbox.DefaultLimits(), sandbox.Forever
					o.Defaults.Lifetime, o.Maxima.Lifetime = life, life
				})
				r := e.mustStart(t, sandbox.RunRequest{Argv: []string{"sleep", "1000000h"}, Timeout: sandbox.Forever})
				time.Sleep(6 * 24 * time.Hour)
				s, err := e.Get(t.Context(), alice, r.SandboxID)
				if err != nil || s.State != sandbox.Running || s.Limits.Lifetime != life {
					t.Fatalf("after six days: %+v, %v", s, err)
				}
				time.Sleep(2 * 24 * time.Hour)
				s, err = e.Get(t.Context(), alice, r.SandboxID)
				if ended := err != nil || s.State == sandbox.Stopped; ended != (life < sandbox.Forever) {
					t.Errorf("after eight days: %+v, %v", s, err)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		e := openWorld(t, newWorld(), t.TempDir(), func(o *Options) { o.MaxRunTimeout = time.Hour })
		for _, d := range []time.Duration{time.Hour + 1, sandbox.Forever} {
			_, err := e.Start(t.Context(), alice, sandbox.RunRequest{Argv: []string{"true"}, Timeout: d})
			if !errors.Is(err, sandbox.Invalid) || !strings.Contains(err.Error(), "1h0m0s") || sandbox.HintOf(err) == "" {
				t.Errorf("timeout %v: %v, hint %q", d, err, sandbox.HintOf(err))
			}
		}
	})
}
