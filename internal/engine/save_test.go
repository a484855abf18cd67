package engine

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/engine/hibernation"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// saving makes an engine save sandboxes on disk.
func saving(w *world, s hibernation.Settings, more ...func(*Options)) func(*Options) {
	s.Disk = true
	return func(o *Options) {
		o.Hibernation, o.Driver = s, savingDriver{worldDriver{w}}
		for _, change := range more {
			change(o)
		}
	}
}

// TestHibernateIdle saves a sandbox that was unused for long enough, and none that is
// used, has a run or must go on. Its record outlives the server.
func TestHibernateIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, dir := newWorld(), t.TempDir()
		opts := saving(w, hibernation.Settings{After: 5 * time.Minute}, detached)
		e := openWorld(t, w, dir, opts)
		idle := e.mustCreate(t, sandbox.CreateRequest{})
		box := w.only(t)
		busy := e.mustCreate(t, sandbox.CreateRequest{})
		e.mustStart(t, sandbox.RunRequest{SandboxID: busy.ID, Argv: []string{"sleep", "9m"}, Timeout: 10 * time.Minute})
		restless := e.mustCreate(t, sandbox.CreateRequest{Restless: true, TTL: time.Hour})
		time.Sleep(5*time.Minute - time.Second)
		e.mustSweep(t)
		if box.isSaved() {
			t.Error("a sandbox was saved before its time")
		}
		time.Sleep(2 * time.Second)
		e.mustSweep(t)
		saved := time.Now()
		got := e.mustGet(t, idle.ID)
		if got.State != sandbox.Hibernated || !box.isSaved() || got.Hibernation.Bytes != 10 || got.Hibernation.Build != "build" || !got.Hibernation.Saved.Equal(saved) {
			t.Errorf("unused for five minutes: %s, saved %t, %+v", got.State, box.isSaved(), got.Hibernation)
		}
		for _, s := range []sandbox.Sandbox{busy, restless} {
			if got := e.mustGet(t, s.ID); got.State != sandbox.Running {
				t.Errorf("%+v is %s", s, got.State)
			}
		}
		if held := e.places.Held(alice); held != 2 {
			t.Errorf("three sandboxes, of which one is on disk, hold %d places", held)
		}
		time.Sleep(2 * time.Hour) // beyond the idle limit
		e.crash(t)
		e = openWorld(t, w, dir, opts)
		e.mustSweep(t)
		got = e.mustGet(t, idle.ID)
		if got.State != sandbox.Hibernated || !box.isSaved() || !got.Hibernation.Saved.Equal(saved) || got.Hibernation.Bytes != 10 {
			t.Errorf("after a restart: %s, saved %t, %+v", got.State, box.isSaved(), got.Hibernation)
		}
		if held := e.places.Held(alice); held != 0 {
			t.Errorf("a sandbox on disk holds %d places", held)
		}
		r := e.mustStart(t, sandbox.RunRequest{SandboxID: idle.ID, Argv: []string{"print", "x"}})
		if code := e.mustWait(t, r.ID).Verdict.Code; code != sandbox.OK {
			t.Errorf("a run in it: %s", code)
		}
		got = e.mustGet(t, idle.ID)
		if got.State != sandbox.Running || got.Hibernation != (sandbox.Hibernation{}) || e.places.Held(alice) != 1 {
			t.Errorf("woken: %s, %+v, %d places", got.State, got.Hibernation, e.places.Held(alice))
		}
	})
}

// TestHibernateIdleFails: a sandbox that cannot be saved runs on, stops by its idle
// limit, and says why it is not on disk.
func TestHibernateIdleFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, dir := newWorld(), t.TempDir()
		opts := saving(w, hibernation.Settings{After: 2 * time.Minute}, detached)
		e := openWorld(t, w, dir, opts)
		s := e.mustCreate(t, sandbox.CreateRequest{})
		box := w.only(t)
		box.unsaved = sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "the disk is full"), "make room")
		time.Sleep(2*time.Minute + time.Second)
		e.mustSweep(t)
		failed := time.Now()
		check := func(when string) {
			t.Helper()
			got := e.mustGet(t, s.ID)
			if got.State != sandbox.Running || !strings.Contains(got.Hibernation.Error, "the disk is full") || !got.Hibernation.Failed.Equal(failed) || !got.Hibernation.Saved.IsZero() {
				t.Errorf("%s: %s, %+v", when, got.State, got.Hibernation)
			}
		}
		check("after a save that failed")
		if !box.isPaused() {
			t.Error("it does not rest")
		}
		time.Sleep(time.Minute)
		box.mu.Lock()
		box.unsaved = nil
		box.mu.Unlock()
		e.mustSweep(t)
		check("before it is time to try again")
		e.crash(t)
		e = openWorld(t, w, dir, opts)
		e.mustSweep(t)
		check("after a restart")
		time.Sleep(2*time.Minute + time.Second) // the new server's takeover was a use
		e.mustSweep(t)
		if got := e.mustGet(t, s.ID); got.State != sandbox.Hibernated || got.Hibernation.Error != "" || got.Hibernation.Bytes == 0 {
			t.Errorf("when there was room: %s, %+v", got.State, got.Hibernation)
		}
	})
}

// TestHibernateForRoom: a full server saves idle sandboxes before it stops any, and a
// saved one takes the place of another when it is used.
func TestHibernateForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), saving(w, hibernation.Settings{}, func(o *Options) {
			o.MaxSandboxes, o.QueueTime, o.EvictAfter = 1, 20*time.Second, 10*time.Second
		}))
		first := e.mustCreate(t, sandbox.CreateRequest{})
		box := w.only(t)
		second := e.mustCreate(t, sandbox.CreateRequest{})
		state := func(id string, want sandbox.State) {
			t.Helper()
			if got := e.mustGet(t, id); got.State != want {
				t.Errorf("%s is %s (%s), want %s", id, got.State, got.Cause, want)
			}
		}
		state(first.ID, sandbox.Hibernated)
		state(second.ID, sandbox.Running)
		if !box.isSaved() {
			t.Error("it is not on disk")
		}
		if err := e.Wake(t.Context(), alice, first.ID); err != nil {
			t.Fatal(err)
		}
		state(first.ID, sandbox.Running)
		state(second.ID, sandbox.Hibernated)
		// A sandbox that cannot be saved makes room as before.
		box.mu.Lock()
		box.unsaved = errors.New("it cannot be saved")
		box.mu.Unlock()
		time.Sleep(11 * time.Second)
		third := e.mustCreate(t, sandbox.CreateRequest{})
		state(first.ID, sandbox.Stopped)
		state(second.ID, sandbox.Hibernated)
		// With the only place in use, a saved sandbox waits for it, and stays.
		e.mustStart(t, sandbox.RunRequest{SandboxID: third.ID, Argv: []string{"sleep", "5m"}, Timeout: 10 * time.Minute})
		if err := e.Wake(t.Context(), alice, second.ID); sandbox.KindOf(err) != sandbox.Exhausted || sandbox.HintOf(err) == "" {
			t.Errorf("woken without a place: %v", err)
		}
		state(second.ID, sandbox.Hibernated)
	})
}

// TestCloseHibernates: a server that ends saves the sandboxes that nothing uses.
func TestCloseHibernates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, dir := newWorld(), t.TempDir()
		opts := saving(w, hibernation.Settings{}, detached)
		e := openWorld(t, w, dir, opts)
		idle := e.mustCreate(t, sandbox.CreateRequest{})
		box := w.only(t)
		busy := e.mustCreate(t, sandbox.CreateRequest{})
		e.mustStart(t, sandbox.RunRequest{SandboxID: busy.ID, Argv: []string{"sleep", "5m"}, Timeout: 10 * time.Minute})
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !box.isSaved() || box.saves != 1 {
			t.Errorf("the idle one was saved %d times", box.saves)
		}
		e = openWorld(t, w, dir, opts)
		e.mustSweep(t)
		if got := e.mustGet(t, idle.ID); got.State != sandbox.Hibernated || got.Hibernation.Bytes == 0 {
			t.Errorf("the idle one: %s, %+v", got.State, got.Hibernation)
		}
		if got := e.mustGet(t, busy.ID); got.State != sandbox.Running {
			t.Errorf("the busy one: %s", got.State)
		}
		if err := e.Wake(t.Context(), alice, idle.ID); err != nil || box.isSaved() {
			t.Errorf("woken: %v, saved %t", err, box.isSaved())
		}
	})
}

// TestManyWakes uses 200 saved sandboxes at once, each several times: each is restored
// once, few at a time, and another principal's need not wait for them all.
func TestManyWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var mu sync.Mutex
		now, most := 0, 0
		w.restoring = func() {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(100 * time.Millisecond)
			mu.Lock()
			now--
			mu.Unlock()
		}
		const many, uses = 200, 3
		e := openWorld(t, w, t.TempDir(), saving(w, hibernation.Settings{}, func(o *Options) { o.MaxSandboxes = many + 1 }))
		var ids []string
		for range many {
			ids = append(ids, e.mustCreate(t, sandbox.CreateRequest{}).ID)
		}
		bobs, err := e.Create(t.Context(), bob, sandbox.CreateRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			if err := e.Hibernate(t.Context(), alice, id); err != nil {
				t.Fatal(err)
			}
		}
		if err := e.Hibernate(t.Context(), bob, bobs.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		before := map[string]int{}
		for _, ref := range w.refs() {
			if before[ref] = w.box(ref).resumes; !w.box(ref).isSaved() {
				t.Fatalf("%s is not saved", ref)
			}
		}
		var wg sync.WaitGroup
		for _, id := range ids {
			for range uses {
				wg.Go(func() {
					if err := e.Wake(t.Context(), alice, id); err != nil {
						t.Error(err)
					}
				})
			}
		}
		synctest.Wait()
		began := time.Now()
		if err := e.Wake(t.Context(), bob, bobs.ID); err != nil {
			t.Error(err)
		}
		if waited := time.Since(began); waited > 300*time.Millisecond {
			t.Errorf("another principal's sandbox waited %v", waited)
		}
		wg.Wait()
		for _, ref := range w.refs() {
			if b := w.box(ref); b.resumes-before[ref] != 1 || b.isSaved() {
				t.Errorf("%s was restored %d times, saved %t", ref, b.resumes-before[ref], b.isSaved())
			}
		}
		if limit := 2 * runtime.GOMAXPROCS(0); most > limit || most == 0 {
			t.Errorf("%d sandboxes were restored at the same time, want at most %d", most, limit)
		}
	})
}

// TestSharedFailure: users that wait for the same wake share its failure.
func TestSharedFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, tries := newWorld(), 0
		w.restoring = func() { tries++; time.Sleep(100 * time.Millisecond) }
		e := openWorld(t, w, t.TempDir(), saving(w, hibernation.Settings{}))
		s := e.mustCreate(t, sandbox.CreateRequest{})
		if err := e.Hibernate(t.Context(), alice, s.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		w.only(t).unwoken = sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "the saved state is damaged"), "make another")
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if err := e.Wake(t.Context(), alice, s.ID); sandbox.KindOf(err) != sandbox.Unavailable || sandbox.HintOf(err) == "" {
					t.Errorf("woken: %v", err)
				}
			})
		}
		wg.Wait()
		if tries != 1 {
			t.Errorf("20 users tried %d times", tries)
		}
		got := e.mustGet(t, s.ID)
		if got.State != sandbox.Hibernated || !strings.Contains(got.Hibernation.Error, "damaged") || got.Hibernation.Saved.IsZero() || e.places.Held(alice) != 0 {
			t.Errorf("afterwards: %s, %+v, %d places", got.State, got.Hibernation, e.places.Held(alice))
		}
	})
}

// TestHibernateSpace: no sandbox is saved once the saved ones use the space for them.
func TestHibernateSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), saving(w, hibernation.Settings{Space: 25, Kept: func() (int64, error) { return 5, nil }}))
		var list []sandbox.Sandbox
		for range 3 {
			s := e.mustCreate(t, sandbox.CreateRequest{})
			if err := e.Hibernate(t.Context(), alice, s.ID); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			list = append(list, e.mustGet(t, s.ID))
		}
		if list[1].Hibernation.Bytes != 10 || list[2].Hibernation.Bytes != 0 || !strings.Contains(list[2].Hibernation.Error, "25 B") {
			t.Errorf("the second: %+v, the third: %+v", list[1].Hibernation, list[2].Hibernation)
		}
		if list[2].State != sandbox.Hibernated || !w.box("box-"+list[2].ID).isPaused() {
			t.Errorf("the third does not hibernate in memory: %s", list[2].State)
		}
		if err := e.Stop(t.Context(), alice, list[0].ID); err != nil {
			t.Fatal(err)
		}
		if sum, err := e.hibernation.Total(t.Context()); err != nil || sum.Count != 1 || sum.Bytes != 10 {
			t.Errorf("saved states: %+v, %v", sum, err)
		}
	})
}

// TestHibernateKeep: a saved sandbox stops when it was not used for long enough.
func TestHibernateKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), saving(w, hibernation.Settings{Keep: 2 * time.Hour}))
		s := e.mustCreate(t, sandbox.CreateRequest{})
		if err := e.Hibernate(t.Context(), alice, s.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		got := e.mustGet(t, s.ID)
		if want := got.Hibernation.Saved.Add(2 * time.Hour); !got.Expires.Equal(want) {
			t.Errorf("it expires at %v, want %v", got.Expires, want)
		}
		time.Sleep(2*time.Hour - 2*time.Second)
		e.mustSweep(t)
		if got := e.mustGet(t, s.ID); got.State != sandbox.Hibernated {
			t.Errorf("before its time it is %s", got.State)
		}
		time.Sleep(3 * time.Second)
		e.mustSweep(t)
		if got := e.mustGet(t, s.ID); got.State != sandbox.Stopped || !strings.Contains(got.Cause, "2h0m0s") || len(w.refs()) > 0 {
			t.Errorf("after its time it is %s: %s; boxes %v", got.State, got.Cause, w.refs())
		}
	})
}

// TestWakes wakes a saved sandbox by each kind of use.
func TestWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), saving(w, hibernation.Settings{}))
		s := e.mustCreate(t, sandbox.CreateRequest{})
		ctx := context.Background()
		for name, use := range map[string]func() error{
			"run": func() error {
				_, err := e.Start(ctx, alice, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"print", "x"}})
				return err
			},
			"shell": func() error {
				_, err := e.Start(ctx, alice, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"print", "x"}, PTY: &sandbox.TerminalSize{Cols: 80, Rows: 24}})
				return err
			},
			"write file": func() error { return e.WriteFile(ctx, alice, s.ID, "/data/f", strings.NewReader("x"), false) },
			"list files": func() error {
				_, _, err := e.ListFiles(ctx, alice, s.ID, "/data", 1)
				return err
			},
			"port": func() error {
				c, err := e.DialPort(ctx, alice, s.ID, 10)
				if err == nil {
					c.Close()
				}
				return err
			},
			"request": func() error {
				resp := e.mustForward(t, s.ID, "/", "")
				return resp.Body.Close()
			},
			"wake": func() error { return e.Wake(ctx, alice, s.ID) },
		} {
			time.Sleep(time.Minute)
			if err := e.Hibernate(ctx, alice, s.ID); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			time.Sleep(time.Second)
			if !w.only(t).isSaved() {
				t.Fatalf("before %s it is not saved", name)
			}
			if err := use(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if got := e.mustGet(t, s.ID); got.State != sandbox.Running || w.only(t).isSaved() {
				t.Errorf("%s leaves it %s, saved %t", name, got.State, w.only(t).isSaved())
			}
		}
	})
}
