package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestHit(t *testing.T) {
	readied := 0
	world(t, func(o *Options) {
		o.Ready = func(_ context.Context, b driver.Box, s *driver.Spec) error {
			readied++
			if s.Streams != 2 || b.(*stubBox).paused {
				t.Errorf("made ready: spec %+v", s)
			}
			return nil
		}
	}, func(t *testing.T, s *stub, p *Pool) {
		p.Keep(spec("a"))
		look()
		if refs, err := p.List(t.Context()); err != nil || len(refs) != 0 {
			t.Errorf("List = %v, %v while one box is warm; want none", refs, err)
		}
		if len(s.noted()) != 1 {
			t.Errorf("the ledger has %v", s.noted())
		}
		want := spec("a")
		want.Limits.Idle = 3 * time.Second // the engine's business
		b := create(t, p, want)
		box := inner(t, b)
		if box.paused || box.spec.ID == want.ID {
			t.Errorf("the box is %+v; want a warm one that goes on", box.spec)
		}
		// The receipt is that of when it was made, and then fresh.
		for i, want := range []string{"1", "2", "3"} {
			r, err := b.Receipt(t.Context())
			if err != nil || r[0].Value != want {
				t.Errorf("receipt %d: %v, %v; want %s", i, r, err, want)
			}
		}
		if paused, err := driver.Pause(t.Context(), b); !paused || err != nil || !box.paused {
			t.Errorf("a claimed box cannot be paused: %v, %v", paused, err)
		}
		look()
		if refs, err := p.List(t.Context()); err != nil || !cmp.Equal(refs, []string{b.Ref()}) {
			t.Errorf("List = %v, %v; want the claimed box, %s", refs, err, b.Ref())
		}
		if got := p.Stats(); got.Hits != 1 || got.Misses != 0 || got.Ready != 2 {
			t.Errorf("stats %+v", got)
		}
		if readied != 3 {
			t.Errorf("%d boxes were made ready", readied)
		}
		// By now its sandbox is recorded.
		time.Sleep(settle + tick)
		look()
		if slices.Contains(s.noted(), b.Ref()) {
			t.Error("a claimed box stays in the ledger")
		}
	})
}

func TestShapes(t *testing.T) {
	world(t, nil, func(t *testing.T, _ *stub, p *Pool) {
		p.Keep(spec("a"))
		look()
		for name, change := range map[string]func(*driver.Spec){
			"image":      func(s *driver.Spec) { s.Image = "b" },
			"memory":     func(s *driver.Spec) { s.Limits.MemoryBytes++ },
			"network":    func(s *driver.Spec) { s.Network = "internet" },
			"hostname":   func(s *driver.Spec) { s.Hostname = "other" },
			"detached":   func(s *driver.Spec) { s.Detached = true },
			"workspace":  func(s *driver.Spec) { s.Workspace = "/x" },
			"containers": func(s *driver.Spec) { s.Containers = true },
			"allowed":    func(s *driver.Spec) { s.AllowUnenforced = []sandbox.ControlName{sandbox.ControlCPU} },
		} {
			want := spec("a")
			change(want)
			if b := inner(t, create(t, p, want)); b.spec.ID != want.ID {
				t.Errorf("another %s is given a warm box", name)
			}
		}
	})
}

// TestShapesOfSecrets has boxes that differ in what a secret is.
func TestShapesOfSecrets(t *testing.T) {
	with := func(value string) *driver.Spec {
		s := spec("a")
		s.Secrets = []sandbox.Secret{{Name: "KEY", Hosts: "a.example:443", Value: sandbox.NewSecretValue(value)}}
		return s
	}
	world(t, nil, func(t *testing.T, _ *stub, p *Pool) {
		p.Keep(with("one value"))
		look()
		for _, want := range []*driver.Spec{with("another"), spec("a")} {
			if b := inner(t, create(t, p, want)); b.spec.ID != want.ID {
				t.Errorf("%+v is given the box of another", want.Secrets)
			}
		}
		want := with("one value")
		if b := inner(t, create(t, p, want)); b.spec.ID == want.ID {
			t.Error("the same secret is given no warm box")
		}
	})
}

// TestHeaderRulesAreNotKept asks often for boxes with header rules of a caller. The
// pool makes none in advance, and keeps no values.
func TestHeaderRulesAreNotKept(t *testing.T) {
	world(t, nil, func(t *testing.T, st *stub, p *Pool) {
		for range 3 {
			s := spec("a")
			s.Secrets = []sandbox.Secret{{Always: true, Headers: []string{"Authorization"}, Hosts: "a.example:443", Value: sandbox.NewSecretValue("a value of a caller")}}
			create(t, p, s)
			look()
		}
		if n := p.Stats().Ready; n != 0 || len(p.shapes) != 0 {
			t.Errorf("%d boxes are ready, and the pool keeps %d shapes", n, len(p.shapes))
		}
	})
}

func TestDemand(t *testing.T) {
	world(t, func(o *Options) { o.Max = 5 }, func(t *testing.T, _ *stub, p *Pool) {
		ready := func() int { look(); return p.Stats().Ready }
		if n := ready(); n != 0 {
			t.Errorf("%d boxes are ready before anybody asked", n)
		}
		for i, want := range []int{1, 2, 3, 4, 5, 5} {
			create(t, p, spec("a"))
			for range i {
				// Those that were ready are taken too.
				if p.Stats().Ready > 0 {
					create(t, p, spec("a"))
				}
			}
			if n := ready(); n < min(want, 2) || n > 5 {
				t.Errorf("after %d rounds %d boxes are ready", i+1, n)
			}
		}
		if n := ready(); n != 5 {
			t.Errorf("%d boxes are ready after much demand; want the most, 5", n)
		}
		create(t, p, spec("b"))
		if n := ready(); n > 5 {
			t.Errorf("%d boxes of two shapes are ready; want 5 at most", n)
		}
		time.Sleep(time.Hour)
		if n := ready(); n != 0 {
			t.Errorf("%d boxes are ready after an hour without demand", n)
		}
	})
}

func TestAge(t *testing.T) {
	world(t, func(o *Options) { o.MaxAge = time.Minute }, func(t *testing.T, s *stub, p *Pool) {
		p.Keep(spec("a"))
		look()
		first, _ := s.List(t.Context())
		time.Sleep(time.Minute + 2*tick)
		look()
		second, _ := s.List(t.Context())
		if len(second) != 1 || second[0] == first[0] {
			t.Errorf("boxes %v, a minute later %v; want another one", first, second)
		}
	})
}

// TestNeverIdle has somebody always ask for what was just made: what must be done
// from time to time is done all the same.
func TestNeverIdle(t *testing.T) {
	world(t, func(o *Options) { o.MaxAge = time.Minute }, func(t *testing.T, s *stub, p *Pool) {
		s.slow = 50 * time.Millisecond
		p.Keep(spec("old"))
		time.Sleep(tick)
		first, _ := s.List(t.Context())
		var longest time.Duration
		for began := time.Now(); time.Since(began) < 2*settle; {
			asked := time.Now()
			b := create(t, p, spec("a"))
			longest = max(longest, time.Since(asked))
			if err := b.Destroy(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(s.slow)
		}
		if most := int(settle/s.slow) + 100; len(s.noted()) > most {
			t.Errorf("the ledger has %d, want at most %d", len(s.noted()), most)
		}
		if refs, _ := s.List(t.Context()); len(first) != 1 || slices.Contains(refs, first[0]) {
			t.Error("a box became too old")
		}
		if st := p.Stats(); st.Hits < 1000 || longest > time.Second {
			t.Errorf("%+v, longest %v", st, longest)
		}
	})
}

// TestYields has boxes of a shape that nobody asks for any more make room for
// those of another.
func TestYields(t *testing.T) {
	world(t, func(o *Options) { o.Max, o.Idle = 3, time.Hour }, func(t *testing.T, _ *stub, p *Pool) {
		ask := func(image string) (warm bool) {
			t.Helper()
			want := spec(image)
			b := inner(t, create(t, p, want))
			look()
			return b.spec.ID != want.ID
		}
		for p.Stats().Ready < 3 {
			for range 1 + p.Stats().Ready { // all that there are, so that there are more
				create(t, p, spec("a"))
			}
			look()
		}
		if ask("b") {
			t.Fatal("the first of b is warm")
		}
		time.Sleep(3 * tick)
		if ask("b") {
			t.Error("what was asked for just now gave its place away")
		}
		time.Sleep(spare)
		look()
		if !ask("b") || !ask("a") {
			t.Errorf("%+v, want some of both", p.Stats())
		}
		if st := p.Stats(); st.Ready > 3 {
			t.Errorf("%+v, want 3 at most", st)
		}
	})
}

// TestYieldsNotTheLast keeps the one that is there also if nobody asks.
func TestYieldsNotTheLast(t *testing.T) {
	world(t, func(o *Options) { o.Max = 1 }, func(t *testing.T, _ *stub, p *Pool) {
		p.Keep(spec("usual"))
		time.Sleep(10 * time.Minute)
		create(t, p, spec("b"))
		time.Sleep(10 * tick)
		look()
		want := spec("usual")
		if b := inner(t, create(t, p, want)); b.spec.ID == want.ID {
			t.Error("the usual one is gone")
		}
	})
}

// TestLedgerFails has a ledger that cannot be written to for a while.
func TestLedgerFails(t *testing.T) {
	world(t, nil, func(t *testing.T, s *stub, p *Pool) {
		p.Keep(spec("a"))
		look()
		b := create(t, p, spec("a"))
		s.mu.Lock()
		s.stuck = errors.New("the disk is full")
		s.mu.Unlock()
		time.Sleep(settle + 2*tick)
		s.mu.Lock()
		s.stuck = nil
		s.mu.Unlock()
		time.Sleep(2 * tick)
		look()
		if slices.Contains(s.noted(), b.Ref()) {
			t.Error("a claimed box stays in the ledger for good")
		}
	})
}

// TestOnce has many callers at once, none of whom may get another's box.
func TestOnce(t *testing.T) {
	world(t, func(o *Options) { o.Max, o.AtOnce = 10, 100 }, func(t *testing.T, s *stub, p *Pool) {
		s.slow = 10 * time.Millisecond
		p.Keep(spec("a"))
		var mu sync.Mutex
		seen := map[string]bool{}
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				for range 5 {
					b, err := p.Create(t.Context(), spec("a"))
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					if seen[b.Ref()] {
						t.Errorf("box %s was handed out twice", b.Ref())
					}
					seen[b.Ref()] = true
					mu.Unlock()
					time.Sleep(7 * time.Millisecond)
				}
			})
		}
		wg.Wait()
		if st := p.Stats(); st.Hits+st.Misses != 500 || st.Hits == 0 {
			t.Errorf("stats %+v", st)
		}
	})
}

// TestColdFirst checks that the pool makes nothing while a caller waits.
func TestColdFirst(t *testing.T) {
	world(t, nil, func(t *testing.T, s *stub, p *Pool) {
		s.slow = time.Second
		var wg sync.WaitGroup
		wg.Go(func() { create(t, p, spec("a")) })
		time.Sleep(s.slow - 3*firstUse)
		look()
		if len(s.noted()) != 0 {
			t.Error("a warm box is made while a caller waits for a cold one")
		}
		wg.Wait()
		look()
		if len(s.noted()) != 1 {
			t.Errorf("the ledger has %v after the caller got its own", s.noted())
		}
		time.Sleep(2 * time.Second)
	})
}

// TestTurns has more callers than may be served at once: all are, in turns.
func TestTurns(t *testing.T) {
	world(t, func(o *Options) { o.AtOnce = 3 }, func(t *testing.T, s *stub, p *Pool) {
		s.slow = time.Second
		began := time.Now()
		var wg sync.WaitGroup
		for range 12 {
			wg.Go(func() { create(t, p, spec("a")) })
		}
		// One that gives up leaves the others alone.
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		look()
		if _, err := p.Create(ctx, spec("a")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Create of one that gives up: %v", err)
		}
		wg.Wait()
		if took := time.Since(began); took != 4*time.Second {
			t.Errorf("12 boxes, 3 at a time, took %v", took)
		}
	})
}

// TestBroken has a warm box that died while it waited: the caller gets another.
func TestBroken(t *testing.T) {
	world(t, nil, func(t *testing.T, s *stub, p *Pool) {
		p.Keep(spec("a"))
		look()
		refs, _ := s.List(t.Context())
		s.boxes[refs[0]].broken = driver.ErrGone
		want := spec("a")
		if b := inner(t, create(t, p, want)); b.spec.ID == refs[0] || b.broken != nil {
			t.Errorf("the caller got %s", b.spec.ID)
		}
		look()
		if _, there := s.boxes[refs[0]]; there || slices.Contains(s.noted(), refs[0]) {
			t.Error("the broken box is still there")
		}
	})
}

func TestFailing(t *testing.T) {
	world(t, nil, func(t *testing.T, s *stub, p *Pool) {
		s.failing = errors.New("no more room")
		p.Keep(spec("a"))
		look()
		if st := p.Stats(); st.Failures != 1 || len(s.noted()) != 0 {
			t.Errorf("stats %+v, ledger %v", st, s.noted())
		}
		if _, err := p.Create(t.Context(), spec("a")); !errors.Is(err, s.failing) {
			t.Errorf("Create = %v", err)
		}
		// It does not try again and again.
		time.Sleep(retryAfter / 2)
		if st := p.Stats(); st.Failures != 1 {
			t.Errorf("stats %+v", st)
		}
		s.mu.Lock()
		s.failing = nil
		s.mu.Unlock()
		time.Sleep(retryAfter)
		look()
		if st := p.Stats(); st.Ready == 0 {
			t.Errorf("stats %+v after the driver works again", st)
		}
	})
}

func TestReadyFails(t *testing.T) {
	world(t, func(o *Options) {
		o.Ready = func(context.Context, driver.Box, *driver.Spec) error { return errors.New("no interpreter answers") }
	}, func(t *testing.T, s *stub, p *Pool) {
		p.Keep(spec("a"))
		look()
		if len(s.boxes) != 0 || len(s.noted()) != 0 {
			t.Errorf("left: boxes %v, ledger %v", s.boxes, s.noted())
		}
	})
}

// TestWorkspace checks that a box with a workspace is made for it, each time:
// others may have the directory already, and know it by more than its name.
func TestWorkspace(t *testing.T) {
	world(t, nil, func(t *testing.T, _ *stub, p *Pool) {
		p.Keep(spec("a"))
		for range 3 {
			want := spec("a")
			want.Workspace = "/somewhere"
			if b := inner(t, create(t, p, want)); b.spec.ID != want.ID || b.spec.Workspace != want.Workspace {
				t.Errorf("a workspace is given box %+v", b.spec)
			}
			look()
		}
		if st := p.Stats(); st.Target != 1 || st.Ready != 1 {
			t.Errorf("stats %+v", st)
		}
	})
}

func TestNewInvalid(t *testing.T) {
	if _, err := New(Options{Driver: newStub()}); !errors.Is(err, sandbox.Invalid) {
		t.Errorf("New without a ledger: %v", err)
	}
}

func TestManyShapes(t *testing.T) {
	world(t, func(o *Options) { o.Max = 2 }, func(t *testing.T, _ *stub, p *Pool) {
		for i := range 10 * maxShapes {
			create(t, p, spec(fmt.Sprint("image", i)))
		}
		if n := len(p.shapes); n > maxShapes {
			t.Errorf("%d shapes are remembered", n)
		}
	})
}

// TestFurther has boxes that are brought on while nobody asks.
func TestFurther(t *testing.T) {
	var brought []string
	world(t, func(o *Options) {
		o.Further = func(_ context.Context, b driver.Box, spec *driver.Spec) (bool, error) {
			if spec.ID != b.Ref() || spec.Image != "a" {
				t.Errorf("box %s, spec %+v", b.Ref(), spec)
			}
			if b.(*stubBox).paused {
				t.Error("it is paused")
			}
			time.Sleep(2 * time.Second)
			brought = append(brought, b.Ref())
			return false, nil
		}
	}, func(t *testing.T, _ *stub, p *Pool) {
		p.Keep(spec("a"))
		time.Sleep(time.Second)
		look()
		if st := p.Stats(); st.Ready != 0 {
			t.Errorf("%+v while it is brought on; want none to be claimed", st)
		}
		if refs, err := p.List(t.Context()); err != nil || len(refs) != 0 {
			t.Errorf("List = %v, %v while a box is brought on; want none", refs, err)
		}
		time.Sleep(3 * time.Second)
		look()
		if st := p.Stats(); st.Ready != 1 || st.Done != 1 {
			t.Errorf("%+v, want one that is done", st)
		}
		b := create(t, p, spec("a"))
		if len(brought) != 1 || b.Ref() != brought[0] {
			t.Errorf("handed out %s of %v", b.Ref(), brought)
		}
		look()
		// Just now somebody asked: those there are stay to be claimed.
		if st := p.Stats(); st.Ready != 2 || st.Done != 0 {
			t.Errorf("%+v, want two that are not done", st)
		}
		time.Sleep(2*tick + 5*time.Second)
		look()
		if st := p.Stats(); st.Ready != 2 || st.Done != 2 {
			t.Errorf("%+v, want two that are done", st)
		}
	})
}

// TestFurtherWaits has boxes that are brought on when the processors have nothing
// else to do, or had else to do for too long.
func TestFurtherWaits(t *testing.T) {
	var busy atomic.Bool
	busy.Store(true)
	world(t, func(o *Options) {
		o.Busy = busy.Load
		o.Further = func(context.Context, driver.Box, *driver.Spec) (bool, error) { return true, nil }
	}, func(t *testing.T, _ *stub, p *Pool) {
		done := func(after time.Duration, want int) {
			t.Helper()
			time.Sleep(after)
			look()
			if st := p.Stats(); st.Ready != 1 || st.Done != want {
				t.Errorf("%+v, want one box, and %d done", st, want)
			}
		}
		p.Keep(spec("a"))
		done(patience-2*tick, 0)
		busy.Store(false)
		done(2*tick, 1)
		busy.Store(true)
		p.trimAll(t)
		done(patience-2*tick, 0)
		done(4*tick, 1)
	})
}

// trimAll has the warm boxes replaced by others.
func (p *Pool) trimAll(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	for _, s := range p.shapes {
		for _, w := range s.ready {
			w.since = time.Now().Add(-2 * p.opts.MaxAge)
		}
	}
	p.mu.Unlock()
	time.Sleep(tick)
	look()
	if st := p.Stats(); st.Ready != 1 || st.Done != 0 {
		t.Fatalf("%+v after all were too old", st)
	}
}

// TestFurtherFails keeps the box as it was.
func TestFurtherFails(t *testing.T) {
	world(t, func(o *Options) {
		o.Further = func(context.Context, driver.Box, *driver.Spec) (bool, error) {
			return false, errors.New("no such module")
		}
	}, func(t *testing.T, _ *stub, p *Pool) {
		p.Keep(spec("a"))
		time.Sleep(2 * tick)
		look()
		if st := p.Stats(); st.Ready != 1 || st.Done != 1 {
			t.Errorf("%+v", st)
		}
		create(t, p, spec("a"))
	})
}

// TestRoom has a machine whose memory is short for a while.
func TestRoom(t *testing.T) {
	var free atomic.Int64
	free.Store(2 << 30)
	world(t, func(o *Options) {
		o.Room = func(bytes int64) bool { return free.Load() >= bytes }
	}, func(t *testing.T, s *stub, p *Pool) {
		for range 3 {
			create(t, p, spec("a"))
			look()
		}
		if p.Stats().Ready < 2 {
			t.Fatalf("%+v", p.Stats())
		}
		p.Keep(spec("b"))
		look()
		free.Store(-1)
		time.Sleep(10 * tick)
		look()
		if st := p.Stats(); st.Ready != 0 {
			t.Errorf("%+v while memory is short; want all given back", st)
		}
		made := s.made
		create(t, p, spec("a")) // cold
		free.Store(100)
		time.Sleep(2 * retryAfter)
		look()
		if st := p.Stats(); st.Ready != 0 || s.made != made+1 {
			t.Errorf("%+v, made %d; want none to be made without room", st, s.made-made)
		}
		free.Store(2 << 30)
		time.Sleep(2 * retryAfter)
		look()
		if st := p.Stats(); st.Ready < 1 {
			t.Errorf("%+v; want some again", st)
		}
	})
}
