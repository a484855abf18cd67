package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/retention"
	"github.com/glovebox-dev/glovebox/internal/engine/run"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

func TestSweepAfterCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		dir := t.TempDir()
		dead := openWorld(t, w, dir, nil)
		live := openWorld(t, w, dir, nil)
		lost := dead.mustStart(t, sandbox.RunRequest{Argv: []string{"sleep", "1h"}})
		kept := live.mustStart(t, sandbox.RunRequest{Argv: []string{"sleep", "20s"}})
		dead.crash(t)
		w.add("box-" + sandbox.NewID()) // of nobody

		e := openWorld(t, w, dir, nil)
		begun := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { defer close(begun); e.Run(ctx) }()
		synctest.Wait()
		cancel()
		<-begun
		if refs := w.refs(); len(refs) != 1 || refs[0] != "box-"+kept.SandboxID {
			t.Errorf("boxes %v, want that of %s", refs, kept.SandboxID)
		}
		checkVerdict(t, e.mustWait(t, lost.ID), sandbox.SandboxLost, "died")
		if got := e.mustGet(t, lost.SandboxID); got.State != sandbox.Stopped {
			t.Errorf("sandbox of the dead: %s", got.State)
		}
		// What lives in another process can be seen, waited for and stopped.
		if got := e.mustGet(t, kept.SandboxID); got.State != sandbox.Running {
			t.Errorf("sandbox of the living: %s", got.State)
		}
		if _, err := e.Start(t.Context(), alice, sandbox.RunRequest{SandboxID: kept.SandboxID, Argv: []string{"x"}}); !errors.Is(err, sandbox.Conflict) {
			t.Errorf("run in the sandbox of another: %v", err)
		}
		checkVerdict(t, e.mustWait(t, kept.ID), sandbox.OK, "")
		if err := e.Stop(t.Context(), alice, kept.SandboxID); err != nil {
			t.Fatal(err)
		}
		live.mustSweep(t)
		synctest.Wait()
		if got := live.mustGet(t, kept.SandboxID); got.State != sandbox.Stopped || live.live(kept.SandboxID) != nil {
			t.Errorf("its owner sees %s", got.State)
		}
		owners, err := os.ReadDir(filepath.Join(dir, "owners"))
		if err != nil || len(owners) != 2 {
			t.Errorf("owners %v, %v; want the two that live", owners, err)
		}
	})
}

func TestStopFromAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		dir := t.TempDir()
		a, b := openWorld(t, w, dir, nil), openWorld(t, w, dir, nil)
		r := a.mustStart(t, sandbox.RunRequest{Argv: []string{"sleep", "20s"}})
		if err := b.Stop(t.Context(), alice, r.SandboxID); err != nil {
			t.Fatal(err)
		}
		checkVerdict(t, a.mustWait(t, r.ID), sandbox.Cancelled, "on request")
		checkVerdict(t, b.mustWait(t, r.ID), sandbox.Cancelled, "on request")

		r = a.mustStart(t, sandbox.RunRequest{Argv: []string{"sleep", "20s"}})
		got, err := b.StopRun(t.Context(), alice, r.ID)
		if err != nil {
			t.Fatal(err)
		}
		checkVerdict(t, got, sandbox.Cancelled, "on request")
		checkVerdict(t, a.mustWait(t, r.ID), sandbox.Cancelled, "on request")
		if got := b.mustGet(t, r.SandboxID); got.State != sandbox.Running {
			t.Errorf("the sandbox is %s", got.State)
		}
	})
}

func TestStraysWithOpaqueReferences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.opaque = true
		dir := t.TempDir()
		a, b := openWorld(t, w, dir, nil), openWorld(t, w, dir, nil)
		entered, leave := make(chan struct{}), make(chan struct{})
		w.creating = func(context.Context, *driver.Spec) error {
			close(entered)
			<-leave
			return nil
		}
		made := make(chan sandbox.Sandbox)
		go func() { made <- a.mustCreate(t, sandbox.CreateRequest{}) }()
		<-entered
		w.add("stray")
		b.mustSweep(t)
		if got := w.refs(); len(got) != 2 {
			t.Fatalf("boxes %v: one of them is just being made, and which is not known", got)
		}
		close(leave)
		<-made
		b.mustSweep(t)
		if got := w.refs(); len(got) != 1 || got[0] == "stray" {
			t.Errorf("boxes %v", got)
		}
	})
}

// TestManyStrays: strays are destroyed at the same time, because each may take a while to
// end.
func TestManyStrays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), nil)
		for i := range 160 {
			w.add(fmt.Sprintf("stray-%d", i))
		}
		w.discarding = func() { time.Sleep(time.Second) }
		began := time.Now()
		e.mustSweep(t)
		if took := time.Since(began); len(w.refs()) > 0 || took > 10*time.Second {
			t.Errorf("the sweep of 160 strays took %v, and %d are left", took, len(w.refs()))
		}
	})
}

func detached(o *Options) { o.Detached = true }

func TestAdoption(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *Engine){
		"AfterCrash": func(t *testing.T, e *Engine) { e.crash(t) },
		"AfterClose": func(t *testing.T, e *Engine) {
			if err := e.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				dir := t.TempDir()
				old := openWorld(t, w, dir, detached)
				s := old.mustCreate(t, sandbox.CreateRequest{Env: map[string]string{"SECRET": "xyzzy"}})
				start := func(argv ...string) sandbox.Run {
					return old.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Argv: argv, KeepStdin: true})
				}
				short, long, over := start("sleep", "3s"), start("sleep", "20s"), start("sleep", "10m")
				input := start("cat")
				time.Sleep(time.Second)
				end(t, old)
				time.Sleep(10 * time.Second) // short ends while nobody is there

				// Another command beside the server leaves it alone.
				cli := openWorld(t, w, dir, nil)
				cli.mustSweep(t)
				if got := cli.mustGet(t, s.ID); got.State != sandbox.Running {
					t.Fatalf("the command line made it %s (%s)", got.State, got.Cause)
				}

				e := openWorld(t, w, dir, detached)
				if name == "AfterCrash" {
					e.mustSweep(t)
				} // else what is asked first finds it
				checkVerdict(t, e.mustWait(t, short.ID), sandbox.OK, "")
				if err := e.SendInput(t.Context(), alice, input.ID, []byte("hello"), true); err != nil {
					t.Fatal(err)
				}
				checkVerdict(t, e.mustWait(t, input.ID), sandbox.OK, "")
				if out, err := e.Output(t.Context(), alice, input.ID, 0); err != nil || out.Stdout != "hello" {
					t.Errorf("output %q, %v", out.Stdout, err)
				}
				checkVerdict(t, e.mustWait(t, long.ID), sandbox.OK, "")
				got := e.mustWait(t, over.ID)
				checkVerdict(t, got, sandbox.Timeout, "30s")
				if took := got.Ended.Sub(got.Started); took < 30*time.Second || took > 30*time.Second+run.Backstop {
					t.Errorf("timed out after %v", took)
				}
				r := e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"cat"}, KeepStdin: true})
				b := w.only(t)
				b.mu.Lock()
				secret := b.procs[r.ID].req.Process.Envs["SECRET"]
				b.mu.Unlock()
				if secret != "xyzzy" {
					t.Errorf("the environment is lost: %q", secret)
				}
				if err := e.Stop(t.Context(), alice, s.ID); err != nil {
					t.Fatal(err)
				}
				checkNowhere(t, dir, "xyzzy")
			})
		})
	}
}

// checkNowhere checks that no file below dir has text in it.
func checkNowhere(t *testing.T, dir, text string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if strings.Contains(string(data), text) {
			t.Errorf("%s has %q in it", path, text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAdoptionOfTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		dir := t.TempDir()
		old := openWorld(t, w, dir, detached)
		r := old.mustStart(t, sandbox.RunRequest{Argv: []string{"sleep", "20s"}})
		old.crash(t)
		w.remove(w.only(t))
		e := openWorld(t, w, dir, detached)
		e.mustSweep(t)
		checkVerdict(t, e.mustWait(t, r.ID), sandbox.SandboxLost, "had died when a server took it over")
		if got := e.mustGet(t, r.SandboxID); got.State != sandbox.Stopped {
			t.Errorf("state %s", got.State)
		}
	})
}

// TestAdoptionOfTheExpired finds the box of a sandbox gone that its driver ended by
// its lease. The sandbox reached its limit, and did not die.
func TestAdoptionOfTheExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, dir := newWorld(), t.TempDir()
		old := openWorld(t, w, dir, detached)
		s := old.mustCreate(t, sandbox.CreateRequest{Limits: sandbox.Limits{Idle: time.Minute}})
		old.crash(t)
		time.Sleep(time.Minute)
		w.remove(w.only(t))
		e := openWorld(t, w, dir, detached)
		e.mustSweep(t)
		if got := e.mustGet(t, s.ID); got.State != sandbox.Stopped || got.Cause != "the sandbox was not used for 1m0s" {
			t.Errorf("state %s, cause %q", got.State, got.Cause)
		}
	})
}

// TestTakeoverOfTheDyingKeepsTheWorkspace takes over a sandbox that is dead when
// it is to be resumed. Its workspace stays open for another sandbox.
func TestTakeoverOfTheDyingKeepsTheWorkspace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, dir := newWorld(), t.TempDir()
		w.spaces = newWorldSpaces()
		options := func(o *Options) { o.Detached, o.Workspaces = true, w.spaces }
		old := openWorld(t, w, dir, options)
		lives := old.mustCreate(t, sandbox.CreateRequest{Workspace: "w"})
		ref := w.refs()
		dies := old.mustCreate(t, sandbox.CreateRequest{Workspace: "w"})
		old.crash(t)
		for _, r := range w.refs() {
			if !slices.Contains(ref, r) {
				w.box(r).die()
			}
		}
		e := openWorld(t, w, dir, options)
		if _, err := e.Contexts(t.Context(), alice, lives.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Contexts(t.Context(), alice, dies.ID); err == nil {
			t.Error("a dead sandbox was taken over")
		}
		synctest.Wait()
		if got := e.mustGet(t, dies.ID); got.State != sandbox.Stopped {
			t.Errorf("the dead sandbox is %s", got.State)
		}
		m, err := e.mounts.Mount(t.Context(), alice, "w", false)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Release()
		if m != e.live(lives.ID).mount.Main() {
			t.Error("the workspace was closed although a sandbox has it")
		}
	})
}

// TestHungGuestsDelayNobody has a new server find sandboxes of one principal
// whose guests do not answer. The expiry, the retention and the runs of another
// principal do not wait for them.
func TestHungGuestsDelayNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		dir := t.TempDir()
		old := openWorld(t, w, dir, detached)
		long := sandbox.Limits{Idle: time.Hour, Lifetime: 5 * time.Hour}
		for range 20 {
			_, err := old.Create(t.Context(), mallory, sandbox.CreateRequest{Env: map[string]string{"A": "b"}, Limits: long})
			if err != nil {
				t.Fatal(err)
			}
		}
		for i, ref := range w.refs() {
			w.box(ref).hung = true
			w.box(ref).stuck = i%2 == 1 // as a guest that does not read its connection
		}
		forgotten := old.mustStart(t, sandbox.RunRequest{New: sandbox.CreateRequest{Limits: long}, Argv: []string{"print", "x"}})
		old.mustWait(t, forgotten.ID)
		time.Sleep(time.Hour - 2*time.Minute)
		short := sandbox.CreateRequest{Limits: sandbox.Limits{Lifetime: 2 * time.Minute}}
		idle := old.mustCreate(t, short)
		ended := old.mustStart(t, sandbox.RunRequest{New: short, Argv: []string{"sleep", "2s"}})
		old.crash(t)
		time.Sleep(3 * time.Minute)

		e := openWorld(t, w, dir, func(o *Options) { o.Detached, o.Retention = true, time.Hour })
		begun := time.Now()
		swept := make(chan time.Duration, 1)
		go func() {
			_ = e.Sweep(context.Background()) // it tells that guests did not answer
			swept <- time.Since(begun)
		}()
		time.Sleep(5 * time.Second)
		for _, id := range []string{idle.ID, ended.SandboxID} {
			if rec, err := e.store.Sandbox(t.Context(), id); err != nil || rec.State != sandbox.Stopped {
				t.Errorf("the expired sandbox %s is %s, %v", id, rec.State, err)
			}
		}
		if rec, err := e.store.Run(t.Context(), ended.ID); err != nil || rec.Verdict.Code != sandbox.OK {
			t.Errorf("the run that had ended: %+v, %v", rec.Verdict, err)
		}
		if _, err := e.store.Run(t.Context(), forgotten.ID); !errors.Is(err, sandbox.NotFound) {
			t.Errorf("the old run: %v, want none", err)
		}
		if took := <-swept; took > 30*time.Second {
			t.Errorf("the sweep took %v", took)
		}
		time.Sleep(createTimeout)
		synctest.Wait()
		if refs := w.refs(); len(refs) != 1 { // that of the forgotten run
			t.Errorf("boxes %v are left", refs)
		}
	})
}

// TestStuckGuestExpires has a guest answer nothing, past every context, to the
// server that takes its sandbox over. The sandbox still ends at its lifetime.
func TestStuckGuestExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		dir := t.TempDir()
		old := openWorld(t, w, dir, detached)
		s := old.mustCreate(t, sandbox.CreateRequest{Env: map[string]string{"A": "b"}, Limits: sandbox.Limits{Lifetime: 2 * time.Minute}})
		w.only(t).stuck = true
		old.crash(t)
		time.Sleep(90 * time.Second)
		e := openWorld(t, w, dir, detached)
		go e.Sweep(context.Background())
		time.Sleep(29 * time.Second)
		if len(w.refs()) != 1 {
			t.Error("the sandbox ended before its lifetime")
		}
		time.Sleep(2 * time.Second)
		rec, err := e.store.Sandbox(t.Context(), s.ID)
		if err != nil || rec.State != sandbox.Stopped || !strings.Contains(rec.Cause, "lifetime") || len(w.refs()) != 0 {
			t.Errorf("after its lifetime: %s, %q, %v, boxes %v", rec.State, rec.Cause, err, w.refs())
		}
	})
}

// TestStuckGuestDoesNotDelayClose closes a server while guests do not answer,
// past every context: one that is being taken over, and one with a run. The
// server lets go of both, so that the next one has them.
func TestStuckGuestDoesNotDelayClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		dir := t.TempDir()
		first := openWorld(t, w, dir, detached)
		taken := first.mustCreate(t, sandbox.CreateRequest{Env: map[string]string{"A": "b"}})
		stuck := w.only(t)
		stuck.stuck = true
		first.crash(t)

		old := openWorld(t, w, dir, detached)
		r := old.mustStart(t, sandbox.RunRequest{Argv: []string{"sleep", "1h"}, Timeout: time.Minute})
		for _, ref := range w.refs() {
			w.box(ref).stuck = true
		}
		go old.Sweep(context.Background())
		time.Sleep(time.Second)
		begun := time.Now()
		if err := old.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took > 30*time.Second {
			t.Errorf("Close took %v", took)
		}
		for _, ref := range w.refs() {
			w.box(ref).mu.Lock()
			w.box(ref).stuck = false
			w.box(ref).mu.Unlock()
		}
		e := openWorld(t, w, dir, detached)
		e.mustSweep(t)
		for _, id := range []string{taken.ID, r.SandboxID} {
			if b := e.live(id); b == nil {
				t.Errorf("the next server does not have sandbox %s", id)
			}
		}
	})
}

// TestCloseReleasesTheOwner closes a server whose work does not end.
func TestCloseReleasesTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		dir := t.TempDir()
		old := openWorld(t, w, dir, detached)
		s := old.mustCreate(t, sandbox.CreateRequest{Limits: sandbox.Limits{Idle: time.Hour}})
		end := make(chan struct{})
		defer close(end)
		old.spawn(func() { <-end })
		if err := old.Close(t.Context()); sandbox.KindOf(err) != sandbox.Internal {
			t.Errorf("%v, want an error of kind Internal", err)
		}
		e := openWorld(t, w, dir, detached)
		e.mustSweep(t)
		if e.live(s.ID) == nil {
			t.Error("the next server does not have the sandbox")
		}
	})
}

func TestUnattendedSandboxExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		dir := t.TempDir()
		old := openWorld(t, w, dir, detached)
		s := old.mustCreate(t, sandbox.CreateRequest{Limits: sandbox.Limits{Idle: time.Minute}})
		if err := old.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		e := openWorld(t, w, dir, nil) // attached: it does not take over
		time.Sleep(50 * time.Second)
		e.mustSweep(t)
		if len(w.refs()) != 1 {
			t.Fatalf("boxes %v before its time", w.refs())
		}
		time.Sleep(11 * time.Second)
		e.mustSweep(t)
		if got := e.mustGet(t, s.ID); got.State != sandbox.Stopped || len(w.refs()) != 0 {
			t.Errorf("%s, boxes %v", got.State, w.refs())
		}
	})
}

func TestRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		dir := t.TempDir()
		e := openWorld(t, w, dir, func(o *Options) { o.Retention = time.Hour })
		keep := sandbox.CreateRequest{Limits: sandbox.Limits{Idle: 5 * time.Hour}}
		old := e.mustStart(t, sandbox.RunRequest{New: keep, Argv: []string{"print", "a"}})
		e.mustWait(t, old.ID)
		ended := e.mustStart(t, sandbox.RunRequest{Argv: []string{"print", "b"}})
		e.mustWait(t, ended.ID)
		if err := e.Stop(t.Context(), alice, ended.SandboxID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(59 * time.Minute)
		young := e.mustStart(t, sandbox.RunRequest{SandboxID: old.SandboxID, Argv: []string{"print", "c"}})
		e.mustWait(t, young.ID)
		e.mustSweep(t)
		for _, id := range []string{old.ID, ended.ID, young.ID} {
			if _, err := e.store.Run(t.Context(), id); err != nil {
				t.Errorf("%v", err)
			}
		}
		time.Sleep(2 * time.Minute)
		if err := e.logs.Mkdir("leftover", 0o700); err != nil {
			t.Fatal(err)
		}
		e.mustSweep(t)
		fresh := openWorld(t, w, dir, nil) // without what is in memory
		for _, id := range []string{old.ID, ended.ID} {
			if _, err := fresh.Wait(t.Context(), alice, id); !errors.Is(err, sandbox.NotFound) {
				t.Errorf("old run %s: %v", id, err)
			}
		}
		if out, err := fresh.Output(t.Context(), alice, young.ID, 0); err != nil || out.Stdout != "c" {
			t.Errorf("young run: %q, %v", out.Stdout, err)
		}
		if _, err := fresh.Get(t.Context(), alice, ended.SandboxID); !errors.Is(err, sandbox.NotFound) {
			t.Errorf("old sandbox: %v", err)
		}
		dirs, err := os.ReadDir(fresh.logs.Name())
		if err != nil || len(dirs) != 1 || dirs[0].Name() != old.SandboxID {
			t.Errorf("logs of %v, %v; want those of %s", dirs, err, old.SandboxID)
		}
		files, err := os.ReadDir(filepath.Join(dir, "logs", old.SandboxID))
		if err != nil || len(files) != 1 {
			t.Errorf("files %v, %v; want the young run's", files, err)
		}
	})
}

// TestRevokedTokensAreForgotten has the sweep remove a token that was revoked long
// ago. A recently revoked token and an old valid one stay.
func TestRevokedTokensAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := openWorld(t, newWorld(), t.TempDir(), nil)
		put := func(id string, n byte) {
			t.Helper()
			if err := e.store.PutToken(t.Context(), store.Token{ID: id, Hash: [32]byte{n}}); err != nil {
				t.Fatal(err)
			}
		}
		revoke := func(id string) {
			t.Helper()
			if err := e.store.RevokeToken(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		put("tok_long_ago", 1)
		put("tok_lately", 2)
		put("tok_valid", 3)
		revoke("tok_long_ago")
		check := func(want ...string) {
			t.Helper()
			e.mustSweep(t)
			list, err := e.store.ListTokens(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, tok := range list {
				got = append(got, tok.ID)
			}
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("on record are %v, want %v", got, want)
			}
		}
		time.Sleep(retention.RevokedTime - time.Minute)
		revoke("tok_lately")
		check("tok_lately", "tok_long_ago", "tok_valid")
		time.Sleep(2 * time.Minute)
		check("tok_lately", "tok_valid")
	})
}

func TestNewNeedsTheDriver(t *testing.T) {
	dir := t.TempDir()
	st, err := store.Open(t.Context(), store.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	_, err = New(Options{Driver: attachedOnly{worldDriver{newWorld()}}, Store: st, StateDir: dir, Detached: true})
	if !errors.Is(err, sandbox.Unsupported) || sandbox.HintOf(err) == "" {
		t.Errorf("%v", err)
	}
	_, err = New(Options{Driver: attachedOnly{worldDriver{newWorld()}}, Store: st, StateDir: dir, Containers: true})
	if !errors.Is(err, sandbox.Unsupported) || !strings.Contains(sandbox.HintOf(err), "sandbox.containers") {
		t.Errorf("containers: %v", err)
	}
}

type attachedOnly struct{ worldDriver }

func (attachedOnly) Info() driver.Info { return driver.Info{Name: "attached"} }

// lateDriver lists a box that a stop has just removed, the first time.
type lateDriver struct {
	worldDriver
	once *sync.Once
	gone string
}

func (d lateDriver) List(ctx context.Context) ([]string, error) {
	refs, err := d.worldDriver.List(ctx)
	d.once.Do(func() { refs = append(refs, d.gone) })
	return refs, err
}

// TestSweepDuringStop has a stop end between the two reads of a sweep. The box
// belonged to a sandbox, so the sweep neither removes it nor says so.
func TestSweepDuringStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var log strings.Builder
		e := openWorld(t, w, t.TempDir(), func(o *Options) {
			o.Driver = lateDriver{worldDriver{w}, new(sync.Once), "box-" + sandbox.NewID()}
			o.Log = slog.New(slog.NewTextHandler(&log, nil))
		})
		stray := "box-" + sandbox.NewID()
		e.mustSweep(t)
		if strings.Contains(log.String(), "belonged to no sandbox") {
			t.Errorf("the log says %s", log.String())
		}
		w.add(stray)
		e.mustSweep(t)
		if !strings.Contains(log.String(), stray) || len(w.refs()) != 0 {
			t.Errorf("boxes %v, the log says %q", w.refs(), log.String())
		}
	})
}
