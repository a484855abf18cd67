package engine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestExhausted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), func(o *Options) { o.MaxSandboxes, o.MaxRuns = 2, 3 })
		s := e.mustCreate(t, sandbox.CreateRequest{})
		e.mustCreate(t, sandbox.CreateRequest{})
		if _, err := e.Create(t.Context(), alice, sandbox.CreateRequest{}); !errors.Is(err, sandbox.Exhausted) || sandbox.HintOf(err) == "" {
			t.Errorf("a third sandbox: %v", err)
		}
		req := sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"sleep", "1s"}}
		for range 3 {
			e.mustStart(t, req)
		}
		if _, err := e.Start(t.Context(), alice, req); !errors.Is(err, sandbox.Exhausted) {
			t.Errorf("a fourth run: %v", err)
		}
		time.Sleep(2 * time.Second)
		e.mustStart(t, req)
	})
}

// fill has every sandbox that a small engine may have, the first of them idle.
func fill(t *testing.T, change func(*Options)) (e *Engine, idle, busy sandbox.Sandbox) {
	t.Helper()
	e = openWorld(t, newWorld(), t.TempDir(), func(o *Options) {
		o.MaxSandboxes, o.QueueTime, o.EvictAfter = 2, 20*time.Second, 10*time.Second
		if change != nil {
			change(o)
		}
	})
	idle = e.mustCreate(t, sandbox.CreateRequest{})
	time.Sleep(time.Second)
	busy = e.mustCreate(t, sandbox.CreateRequest{})
	e.mustStart(t, sandbox.RunRequest{SandboxID: busy.ID, Argv: []string{"sleep", "100s"}, Timeout: 5 * time.Minute})
	return e, idle, busy
}

// TestEvicts has a sandbox that nobody uses make room for another.
func TestEvicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, idle, busy := fill(t, nil)
		began := time.Now()
		third := e.mustCreate(t, sandbox.CreateRequest{})
		if waited := time.Since(began); waited < 8*time.Second || waited > 11*time.Second {
			t.Errorf("waited %v, want until the idle one was idle for ten seconds", waited)
		}
		s, err := e.Get(t.Context(), alice, idle.ID)
		if err != nil || s.State != sandbox.Stopped || !strings.Contains(s.Cause, "full") {
			t.Errorf("the idle one: %+v, %v", s, err)
		}
		if _, err := e.Start(t.Context(), alice, sandbox.RunRequest{SandboxID: idle.ID, Argv: []string{"x"}}); !errors.Is(err, sandbox.Conflict) {
			t.Errorf("a run in it: %v", err)
		}
		for _, id := range []string{busy.ID, third.ID} {
			if s, err := e.Get(t.Context(), alice, id); err != nil || s.State != sandbox.Running {
				t.Errorf("%+v, %v", s, err)
			}
		}
	})
}

// TestEvictsAnother has a sandbox that cannot be stopped: another makes room.
func TestEvictsAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), func(o *Options) {
			o.MaxSandboxes, o.QueueTime, o.EvictAfter = 2, time.Minute, 10*time.Second
		})
		e.mustCreate(t, sandbox.CreateRequest{})
		stuck := w.only(t)
		stuck.mu.Lock()
		stuck.failing = errors.New("it does not go")
		stuck.mu.Unlock()
		time.Sleep(time.Second)
		other := e.mustCreate(t, sandbox.CreateRequest{})
		time.Sleep(11 * time.Second)
		began := time.Now()
		e.mustCreate(t, sandbox.CreateRequest{})
		if waited := time.Since(began); waited > 5*time.Second {
			t.Errorf("waited %v", waited)
		}
		if s, err := e.Get(t.Context(), alice, other.ID); err != nil || s.State != sandbox.Stopped {
			t.Errorf("the other: %+v, %v", s, err)
		}
		stuck.mu.Lock()
		stuck.failing = nil
		stuck.mu.Unlock()
	})
}

// TestEvictsNobody has only sandboxes that are in use, or are to be kept.
func TestEvictsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, idle, _ := fill(t, nil)
		if err := e.Hibernate(t.Context(), alice, idle.ID); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, err := e.Create(t.Context(), alice, sandbox.CreateRequest{})
		if !errors.Is(err, sandbox.Exhausted) || sandbox.HintOf(err) == "" || sandbox.RetryAfterOf(err) != 10*time.Second {
			t.Errorf("%v, hint %q, retry after %v", err, sandbox.HintOf(err), sandbox.RetryAfterOf(err))
		}
		if waited := time.Since(began); waited != 20*time.Second {
			t.Errorf("waited %v", waited)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := e.Create(ctx, alice, sandbox.CreateRequest{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller who leaves: %v", err)
		}
		if n := e.Stats().Waiting; n != 0 {
			t.Errorf("%d wait", n)
		}
	})
}

// TestQueueIsFair has one who asks for many, and then another.
func TestQueueIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bob sandbox.Principal = "bob"
		e, first, second := fill(t, func(o *Options) { o.EvictAfter = 0 })
		type place struct {
			p  sandbox.Principal
			id string
		}
		got := make(chan place, 4)
		for i, p := range []sandbox.Principal{alice, alice, alice, bob} {
			go func() {
				s, err := e.Create(t.Context(), p, sandbox.CreateRequest{})
				if err != nil {
					t.Errorf("caller %d: %v", i, err)
				}
				got <- place{p, s.ID}
			}()
			synctest.Wait()
		}
		stop := []place{{alice, first.ID}, {alice, second.ID}}
		for i, want := range []sandbox.Principal{bob, alice, alice, alice} {
			if err := e.Stop(t.Context(), stop[0].p, stop[0].id); err != nil {
				t.Fatal(err)
			}
			next := <-got
			if next.p != want {
				t.Errorf("place %d is %s's, want %s's", i, next.p, want)
			}
			stop = append(stop[1:], next)
		}
	})
}

// TestQueueEnds has an engine that closes while somebody waits.
func TestQueueEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _, _ := fill(t, nil)
		done := make(chan error)
		go func() {
			_, err := e.Create(t.Context(), alice, sandbox.CreateRequest{})
			done <- err
		}()
		synctest.Wait()
		if err := e.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, sandbox.Unavailable) {
			t.Errorf("%v", err)
		}
	})
}
