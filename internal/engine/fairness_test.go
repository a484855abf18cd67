package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// p99 is the 99th percentile.
func p99(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[(len(times)*99+99)/100-1]
}

// What a box takes to be made and to go, in the tests of fairness.
const (
	slowCreate  = 100 * time.Millisecond
	slowDestroy = 50 * time.Millisecond
)

// openSlow opens an engine with 40 places, whose boxes take time.
func openSlow(t *testing.T) *Engine {
	w := newWorld()
	w.creating = func(ctx context.Context, _ *driver.Spec) error {
		select {
		case <-time.After(slowCreate):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	w.destroying = func() { time.Sleep(slowDestroy) }
	return openWorld(t, w, t.TempDir(), func(o *Options) {
		o.MaxSandboxes, o.QueueTime, o.EvictAfter = 40, 20*time.Second, 10*time.Second
	})
}

// visit is what an ordinary caller does: it makes a sandbox, uses it, and stops
// it. It returns how long the caller waited for the sandbox.
func visit(t *testing.T, e *Engine, p sandbox.Principal) time.Duration {
	begun := time.Now()
	s, err := e.Create(t.Context(), p, sandbox.CreateRequest{})
	took := time.Since(begun)
	if err != nil {
		t.Errorf("%s: %v", p, err)
		return took
	}
	r, err := e.Start(t.Context(), p, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"sleep", "200ms"}})
	if err != nil {
		t.Errorf("%s: %v", p, err)
		return took
	}
	if r, err = e.Wait(t.Context(), p, r.ID); err != nil || r.Verdict.Code != sandbox.OK {
		t.Errorf("%s: %+v, %v", p, r.Verdict, err)
	}
	if err := e.Stop(t.Context(), p, s.ID); err != nil {
		t.Errorf("%s: %v", p, err)
	}
	return took
}

// TestPlacesAreShared has one principal take all places for sandboxes, keep them
// busy, and ask for more without a pause. The others wait at most five times as
// long as on an idle server.
func TestPlacesAreShared(t *testing.T) {
	for _, principals := range []int{2, 20} {
		t.Run(fmt.Sprint(principals), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := openSlow(t)
				idle := visit(t, e, "first")

				ctx, cancel := context.WithCancel(t.Context())
				var hostile sync.WaitGroup
				for range 60 {
					hostile.Go(func() {
						for ctx.Err() == nil {
							s, err := e.Create(ctx, "mallory", sandbox.CreateRequest{Restless: true})
							if err == nil {
								_, err = e.Start(ctx, "mallory", sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"sleep", "1h"}, Timeout: 5 * time.Minute})
							}
							if ctx.Err() == nil && sandbox.KindOf(err) == sandbox.Internal {
								t.Errorf("mallory: %v", err)
							}
							time.Sleep(50 * time.Millisecond)
						}
					})
				}
				time.Sleep(5 * time.Second)
				if held := e.places.Held("mallory"); held != 40 {
					t.Errorf("mallory holds %d places of an idle server, want 40", held)
				}
				var mu sync.Mutex
				var waited []time.Duration
				var others sync.WaitGroup
				for i := range principals - 1 {
					others.Go(func() {
						for range 20 {
							d := visit(t, e, sandbox.Principal(fmt.Sprint("other", i)))
							mu.Lock()
							waited = append(waited, d)
							mu.Unlock()
						}
					})
				}
				others.Wait()
				if got := p99(waited); got > 5*idle {
					t.Errorf("waited %v for a sandbox, %v on an idle server", got, idle)
				}
				cancel()
				hostile.Wait()
			})
		})
	}
}

// TestPullsAreShared has one principal pull images without a pause from a registry
// that never ends. The others wait at most five times as long as on an idle
// server.
func TestPullsAreShared(t *testing.T) {
	for _, principals := range []int{2, 20} {
		t.Run(fmt.Sprint(principals), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				d := newImageWorld(w)
				const stuck, took = "stuck.example/img:1", 10 * time.Second
				d.pulling = func(ctx context.Context, ref string) {
					if ref == stuck {
						<-ctx.Done()
						return
					}
					time.Sleep(took)
				}
				for i := range principals {
					name := fmt.Sprintf("other.example/img:%d", i)
					d.registry[name] = sandbox.Image{Name: name, ID: fmt.Sprint("sha256:", i)}
				}
				e := openWorld(t, w, t.TempDir(), func(o *Options) { o.Driver = d })
				ctx, cancel := context.WithCancel(t.Context())
				var hostile sync.WaitGroup
				for range 50 {
					hostile.Go(func() {
						for ctx.Err() == nil {
							e.FetchImage(ctx, "mallory", stuck, nil)
							time.Sleep(time.Second)
						}
					})
				}
				time.Sleep(time.Minute)
				if held := e.images.Pulls().Held("mallory"); held != 2 {
					t.Errorf("mallory holds %d of 4 pulls", held)
				}
				var mu sync.Mutex
				var waited []time.Duration
				var others sync.WaitGroup
				for i := range principals - 1 {
					others.Go(func() {
						time.Sleep(time.Duration(i) * took / 2) // as many as half of the places can serve
						begun := time.Now()
						if _, err := e.FetchImage(t.Context(), sandbox.Principal(fmt.Sprint("other", i)), fmt.Sprintf("other.example/img:%d", i), nil); err != nil {
							t.Error(err)
						}
						mu.Lock()
						waited = append(waited, time.Since(begun))
						mu.Unlock()
					})
				}
				others.Wait()
				if got := p99(waited); got > 5*took {
					t.Errorf("waited %v for an image, %v on an idle server", got, took)
				}
				cancel()
				hostile.Wait()
				if st := e.images.Pulls().Stats(); st.Used != 0 || st.Waiting != 0 {
					t.Errorf("left: %+v", st)
				}
			})
		})
	}
}

// TestEvictsStarting has a principal that holds all places with sandboxes that
// take long to start.
func TestEvictsStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.creating = func(ctx context.Context, spec *driver.Spec) error {
			if spec.Hostname != "slow" {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}
		e := openWorld(t, w, t.TempDir(), func(o *Options) {
			o.MaxSandboxes, o.QueueTime, o.EvictAfter = 2, 20*time.Second, 10*time.Second
		})
		errs := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := e.Create(t.Context(), "mallory", sandbox.CreateRequest{Name: "slow"})
				errs <- err
			}()
		}
		synctest.Wait()
		begun := time.Now()
		if _, err := e.Create(t.Context(), alice, sandbox.CreateRequest{}); err != nil || time.Since(begun) > time.Second {
			t.Errorf("%v, after %v", err, time.Since(begun))
		}
		if err := <-errs; !errors.Is(err, sandbox.Exhausted) || sandbox.HintOf(err) == "" || sandbox.RetryAfterOf(err) == 0 {
			t.Errorf("the one that made room: %v", err)
		}
		<-errs // at its time limit
	})
}

// TestAdoptedCount has places that a sandbox of an earlier process has.
func TestAdoptedCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, dir := newWorld(), t.TempDir()
		change := func(o *Options) { o.MaxSandboxes, o.Detached, o.EvictAfter = 2, true, 10*time.Second }
		e := openWorld(t, w, dir, change)
		for range 2 {
			e.mustCreate(t, sandbox.CreateRequest{})
		}
		e.crash(t)
		e = openWorld(t, w, dir, func(o *Options) { change(o); o.MaxSandboxes = 1 })
		if err := e.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if st := e.places.Stats(); st.Used != 2 || st.Principals != 1 {
			t.Errorf("%+v", st)
		}
		if _, err := e.Create(t.Context(), alice, sandbox.CreateRequest{}); !errors.Is(err, sandbox.Exhausted) {
			t.Errorf("a third: %v", err)
		}
	})
}
