package engine

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestEnd: a sandbox ends when it was told to, whether it is used or not, and
// not before; its end can be moved within its lifetime.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), nil)
		ctx := context.Background()
		s := e.mustCreate(t, sandbox.CreateRequest{TTL: time.Hour, Restless: true, Labels: map[string]string{"a": "b"}})
		if !s.Ends.Equal(s.Created.Add(time.Hour)) || !s.Expires.Equal(s.Ends) || s.Labels["a"] != "b" {
			t.Errorf("made %+v", s)
		}
		time.Sleep(59 * time.Minute) // far beyond the usual idle limit
		if got := e.mustGet(t, s.ID); got.State != sandbox.Running {
			t.Fatalf("before its end it is %s: %s", got.State, got.Cause)
		}
		if w.only(t).pauses > 0 {
			t.Error("a restless sandbox was paused")
		}
		last := s.Created.Add(s.Limits.Lifetime)
		if got, err := e.SetEnd(ctx, alice, s.ID, 24*time.Hour); err != nil || !got.Ends.Equal(last) || !got.Expires.Equal(last) {
			t.Errorf("an end beyond the lifetime: %+v, %v; want the end at %v", got, err, last)
		}
		for _, ttl := range []time.Duration{-time.Second, time.Millisecond} {
			if _, err := e.SetEnd(ctx, alice, s.ID, ttl); !errors.Is(err, sandbox.Invalid) {
				t.Errorf("an end after %v: %v; want invalid", ttl, err)
			}
		}
		moved, err := e.SetEnd(ctx, alice, s.ID, 10*time.Minute)
		if err != nil || !moved.Expires.Equal(time.Now().Add(10*time.Minute)) {
			t.Fatalf("moved: %+v, %v", moved, err)
		}
		resp := e.mustForward(t, s.ID, "/hold", "")
		defer resp.Body.Close()
		time.Sleep(9 * time.Minute)
		if got := e.mustGet(t, s.ID); got.State != sandbox.Running {
			t.Fatalf("before its new end it is %s", got.State)
		}
		time.Sleep(2 * time.Minute)
		if got := e.mustGet(t, s.ID); got.State != sandbox.Stopped {
			t.Errorf("after its end it is %s", got.State)
		}
		if _, err := e.SetEnd(ctx, alice, s.ID, time.Minute); err == nil {
			t.Error("the end of a stopped sandbox was moved")
		}
	})
}

// TestEndNow ends sandboxes at once: one stops, the other hibernates.
func TestEndNow(t *testing.T) {
	for atEnd, want := range map[sandbox.AtEnd]sandbox.State{"": sandbox.Stopped, sandbox.AtEndHibernate: sandbox.Hibernated} {
		synctest.Test(t, func(t *testing.T) {
			e := openWorld(t, newWorld(), t.TempDir(), nil)
			s := e.mustCreate(t, sandbox.CreateRequest{TTL: 25 * time.Hour, AtEnd: atEnd, Restless: true})
			if last := s.Created.Add(s.Limits.Lifetime); !s.Ends.Equal(last) {
				t.Errorf("a sandbox that asks for 25 hours ends at %v, want its lifetime's end %v", s.Ends, last)
			}
			if _, err := e.SetEnd(t.Context(), alice, s.ID, 0); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if got := e.mustGet(t, s.ID); got.State != want {
				t.Errorf("at_end %q: after its end it is %s, want %s", atEnd, got.State, want)
			}
		})
	}
}

func TestEndRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), func(o *Options) { o.Maxima.Idle = 20 * time.Minute })
		for name, req := range map[string]sandbox.CreateRequest{
			"no time":          {TTL: -time.Second},
			"too short":        {TTL: time.Millisecond},
			"unknown fate":     {TTL: time.Minute, AtEnd: "vanish"},
			"labels not UTF-8": {Labels: map[string]string{"a": "\xff"}},
			"labels too large": {Labels: map[string]string{"a": string(make([]byte, request.MaxLabelsSize))}},
		} {
			if _, err := e.Create(context.Background(), alice, req); !errors.Is(err, sandbox.Invalid) {
				t.Errorf("%s: %v; want invalid", name, err)
			}
		}
		s := e.mustCreate(t, sandbox.CreateRequest{TTL: time.Hour})
		if s.Limits.Idle != 20*time.Minute {
			t.Errorf("idle limit %v; want the operator's maximum", s.Limits.Idle)
		}
	})
}

// TestHibernate: a hibernated sandbox is paused, does not end for its timeout,
// survives the server, and wakes when it is used.
func TestHibernate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, dir := newWorld(), t.TempDir()
		detached := func(o *Options) { o.Detached = true }
		e := openWorld(t, w, dir, detached)
		ctx := context.Background()
		s := e.mustCreate(t, sandbox.CreateRequest{TTL: time.Minute, Restless: true})
		resp := e.mustForward(t, s.ID, "/hold", "")
		cut := make(chan error)
		go func() {
			_, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			cut <- err
		}()
		if err := e.Hibernate(ctx, alice, s.ID); err != nil {
			t.Fatal(err)
		}
		if err := <-cut; err == nil {
			t.Error("what was being forwarded was not cut off")
		}
		if got := e.mustGet(t, s.ID); got.State != sandbox.Hibernated || !w.only(t).isPaused() {
			t.Errorf("it is %s, paused %t", got.State, w.only(t).isPaused())
		}
		if err := e.Hibernate(ctx, alice, s.ID); !errors.Is(err, sandbox.Conflict) {
			t.Errorf("again: %v; want conflict", err)
		}
		if _, err := e.SetEnd(ctx, alice, s.ID, time.Minute); !errors.Is(err, sandbox.Conflict) {
			t.Errorf("set end: %v; want conflict", err)
		}
		time.Sleep(time.Hour)
		e.crash(t)
		e = openWorld(t, w, dir, detached)
		e.mustSweep(t)
		time.Sleep(time.Second)
		if got := e.mustGet(t, s.ID); got.State != sandbox.Hibernated || !w.only(t).isPaused() {
			t.Fatalf("after a restart it is %s, paused %t", got.State, w.only(t).isPaused())
		}
		if err := e.Wake(ctx, alice, s.ID); err != nil {
			t.Fatal(err)
		}
		got := e.mustGet(t, s.ID)
		if got.State != sandbox.Running || w.only(t).isPaused() || !got.Ends.Equal(time.Now().Add(wakeTTL)) {
			t.Errorf("woken it is %+v, paused %t", got, w.only(t).isPaused())
		}
		time.Sleep(wakeTTL + time.Second)
		if got := e.mustGet(t, s.ID); got.State != sandbox.Stopped {
			t.Errorf("after its end it is %s", got.State)
		}
	})
}

// coldDriver is one whose boxes are paused in seconds, and lose what goes on.
type coldDriver struct{ worldDriver }

func (d coldDriver) Info() driver.Info {
	info := d.worldDriver.Info()
	info.Features.ColdPause = true
	return info
}

// TestColdPause: where pausing is dear, only a sandbox that hibernates is paused.
func TestColdPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), func(o *Options) { o.Driver = coldDriver{worldDriver{w}} })
		s := e.mustCreate(t, sandbox.CreateRequest{})
		time.Sleep(time.Minute)
		if w.only(t).pauses > 0 {
			t.Error("a sandbox at rest was paused")
		}
		if err := e.Hibernate(t.Context(), alice, s.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if !w.only(t).isPaused() {
			t.Error("a sandbox that hibernates is not paused")
		}
		if err := e.Wake(t.Context(), alice, s.ID); err != nil || w.only(t).isPaused() {
			t.Errorf("woken: %v, paused %t", err, w.only(t).isPaused())
		}
	})
}

// savingDriver is one that saves boxes on disk.
type savingDriver struct{ worldDriver }

func (d savingDriver) Info() driver.Info {
	info := d.worldDriver.Info()
	info.Features.Save = true
	return info
}

// TestHibernateOnDisk: a hibernated sandbox is on disk, stays there when a server
// takes it over, and its users share one wake. Rest is in memory.
func TestHibernateOnDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, dir := newWorld(), t.TempDir()
		saving := func(o *Options) { o.Detached, o.Hibernation.Disk, o.Driver = true, true, savingDriver{worldDriver{w}} }
		e := openWorld(t, w, dir, saving)
		s := e.mustCreate(t, sandbox.CreateRequest{Env: map[string]string{"KEPT": "yes"}})
		time.Sleep(time.Minute)
		if b := w.only(t); !b.isPaused() || b.isSaved() {
			t.Errorf("a sandbox at rest: paused %t, saved %t; want it in memory", b.isPaused(), b.isSaved())
		}
		if err := e.Hibernate(t.Context(), alice, s.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if got := e.mustGet(t, s.ID); got.State != sandbox.Hibernated || !w.only(t).isSaved() {
			t.Fatalf("it is %s, saved %t", got.State, w.only(t).isSaved())
		}
		e.crash(t)
		e = openWorld(t, w, dir, saving)
		e.mustSweep(t)
		time.Sleep(time.Hour)
		resumes := w.only(t).resumes
		if got := e.mustGet(t, s.ID); got.State != sandbox.Hibernated || !w.only(t).isSaved() {
			t.Fatalf("after a restart it is %s, saved %t", got.State, w.only(t).isSaved())
		}
		errs := make(chan error)
		for range 10 {
			go func() { errs <- e.Wake(t.Context(), alice, s.ID) }()
		}
		for range 10 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if n := w.only(t).resumes - resumes; n != 1 {
			t.Errorf("10 uses at the same time woke it %d times", n)
		}
		if got := e.mustGet(t, s.ID); got.State != sandbox.Running {
			t.Errorf("woken it is %s", got.State)
		}
		if env := e.live(s.ID).env; env["KEPT"] != "yes" {
			t.Errorf("its environment is %v", env)
		}
	})
}

// TestHibernateUnsaved: a sandbox that cannot be saved hibernates in memory.
func TestHibernateUnsaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), func(o *Options) { o.Hibernation.Disk, o.Driver = true, savingDriver{worldDriver{w}} })
		s := e.mustCreate(t, sandbox.CreateRequest{})
		w.only(t).unsaved = sandbox.Errorf(sandbox.Unsupported, "it has secrets")
		if err := e.Hibernate(t.Context(), alice, s.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if b := w.only(t); !b.isPaused() || b.isSaved() || e.mustGet(t, s.ID).State != sandbox.Hibernated {
			t.Errorf("paused %t, saved %t, %s", b.isPaused(), b.isSaved(), e.mustGet(t, s.ID).State)
		}
		if err := e.Wake(t.Context(), alice, s.ID); err != nil || w.only(t).isPaused() {
			t.Errorf("woken: %v, paused %t", err, w.only(t).isPaused())
		}
	})
}

// TestWakeFails: a sandbox that cannot be woken says why, hibernates on, and wakes
// when the reason is gone.
func TestWakeFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), func(o *Options) { o.Hibernation.Disk, o.Driver = true, savingDriver{worldDriver{w}} })
		s := e.mustCreate(t, sandbox.CreateRequest{})
		if err := e.Hibernate(t.Context(), alice, s.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		w.only(t).unwoken = sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "a file is missing"), "put it back")
		for range 2 {
			err := e.Wake(t.Context(), alice, s.ID)
			if sandbox.KindOf(err) != sandbox.Unavailable || sandbox.HintOf(err) != "put it back" {
				t.Errorf("woken without a file: %v (hint: %s)", err, sandbox.HintOf(err))
			}
			time.Sleep(time.Hour) // beyond the idle limit
			if got := e.mustGet(t, s.ID); got.State != sandbox.Hibernated || !w.only(t).isSaved() {
				t.Fatalf("after a wake that failed it is %s, saved %t", got.State, w.only(t).isSaved())
			}
		}
		w.only(t).unwoken = nil
		if err := e.Wake(t.Context(), alice, s.ID); err != nil {
			t.Fatal(err)
		}
		if got := e.mustGet(t, s.ID); got.State != sandbox.Running {
			t.Errorf("woken it is %s", got.State)
		}
	})
}

// TestSlowHibernateAtEnd has the end of a sandbox's use take as long as a driver
// may that pauses in minutes.
func TestSlowHibernateAtEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), func(o *Options) { o.Driver = coldDriver{worldDriver{w}} })
		s := e.mustCreate(t, sandbox.CreateRequest{TTL: time.Minute, AtEnd: sandbox.AtEndHibernate, Restless: true})
		resp := e.mustForward(t, s.ID, "/hold", "")
		go func() {
			_, _ = io.ReadAll(resp.Body) // until it is cut off
			time.Sleep(coldPauseTimeout / 2)
			resp.Body.Close()
		}()
		time.Sleep(time.Hour)
		if got := e.mustGet(t, s.ID); got.State != sandbox.Hibernated {
			t.Errorf("after its end it is %s: %s", got.State, got.Cause)
		}
	})
}

func TestHibernateAtEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), nil)
		s := e.mustCreate(t, sandbox.CreateRequest{TTL: time.Minute, AtEnd: sandbox.AtEndHibernate, Restless: true})
		time.Sleep(time.Hour)
		if got := e.mustGet(t, s.ID); got.State != sandbox.Hibernated || !w.only(t).isPaused() {
			t.Fatalf("after its end it is %s", got.State)
		}
		r := e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"print", "x"}})
		if e.mustWait(t, r.ID).Verdict.Code != sandbox.OK || e.mustGet(t, s.ID).State != sandbox.Running {
			t.Error("a run does not wake it")
		}
		r = e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"sleep", "30s"}})
		if err := e.Hibernate(context.Background(), alice, s.ID); !errors.Is(err, sandbox.Conflict) {
			t.Errorf("hibernate during a run: %v; want conflict", err)
		}
		e.mustWait(t, r.ID)
		time.Sleep(time.Hour)
		if got := e.mustGet(t, s.ID); got.State != sandbox.Hibernated {
			t.Errorf("after its second end it is %s", got.State)
		}
		time.Sleep(25 * time.Hour)
		if got := e.mustGet(t, s.ID); got.State != sandbox.Stopped {
			t.Errorf("after its lifetime it is %s", got.State)
		}
	})
}
