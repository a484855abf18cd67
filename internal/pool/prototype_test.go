package pool

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// imports is a Further that takes that long. It counts its calls.
type imports struct {
	take   time.Duration
	unlike bool // its programs do not take new random numbers
	calls  atomic.Int64
}

func (i *imports) options(o *Options) {
	o.Snapshots = o.Driver.(*stub)
	o.Further = func(context.Context, driver.Box, *driver.Spec) (bool, error) {
		time.Sleep(i.take)
		i.calls.Add(1)
		return !i.unlike, nil
	}
}

// ask has the pool know that boxes of a shape are asked for.
func ask(p *Pool, image string) {
	p.Keep(spec(image))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shapeOfLocked(spec(image)).requests = worthRequests
}

// rest gives the pool time for all that it would do.
func rest() {
	time.Sleep(10 * time.Second)
	look()
}

// set sets what the stub says.
func (s *stub) set(field *error, value error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*field = value
}

// kept returns the snapshots.
func (s *stub) kept() []string {
	ids, _ := s.Snapshots(context.Background())
	return ids
}

// age has the boxes and prototypes be too old.
func (p *Pool) age() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.shapes {
		if s.prototype != nil {
			s.prototype.made = time.Now().Add(-2 * prototypeAge)
		}
		for _, w := range s.ready {
			w.since = time.Now().Add(-2 * p.opts.MaxAge)
		}
	}
}

// TestPrototype imports once, and has each further box of the shape made from the
// snapshot.
func TestPrototype(t *testing.T) {
	i := &imports{take: time.Second}
	world(t, i.options, func(t *testing.T, s *stub, p *Pool) {
		ask(p, "a")
		rest()
		want := Stats{Ready: 1, Done: 1, Target: 1, Max: 8, Started: 1, Restored: 1, Prototypes: 1, PrototypeBytes: 1000}
		if got := p.Stats(); got != want {
			t.Fatalf("%+v, want %+v", got, want)
		}
		if refs, _ := s.List(t.Context()); len(refs) != 1 {
			t.Errorf("boxes %v; want that of which the snapshot was made to be gone", refs)
		}
		for range 3 {
			b := create(t, p, spec("a"))
			if inner(t, b).paused {
				t.Error("the box is paused")
			}
			rest()
		}
		if st := p.Stats(); i.calls.Load() != 1 || st.Started != 1 || st.Hits != 3 || st.Done != st.Ready {
			t.Errorf("%d imports, %+v; want one, and all other boxes from the prototype", i.calls.Load(), st)
		}
	})
}

// TestPrototypeWorth makes none for imports that take less than a restored box costs.
func TestPrototypeWorth(t *testing.T) {
	i := &imports{take: worthTime / 2}
	world(t, i.options, func(t *testing.T, s *stub, p *Pool) {
		ask(p, "a")
		rest()
		if st := p.Stats(); st.Done != 1 || st.Prototypes != 0 || i.calls.Load() != 1 {
			t.Errorf("%+v", st)
		}
	})
}

// TestPrototypeAskedFor makes one when boxes are asked for again, and not for one caller.
func TestPrototypeAskedFor(t *testing.T) {
	i := &imports{take: time.Second}
	world(t, i.options, func(t *testing.T, s *stub, p *Pool) {
		p.Keep(spec("a"))
		rest()
		for n := 1; n <= worthRequests; n++ {
			if st := p.Stats(); st.Prototypes != 0 {
				t.Errorf("%+v before request %d", st, n)
			}
			create(t, p, spec("a"))
			rest()
		}
		if st := p.Stats(); st.Prototypes != 1 {
			t.Errorf("%+v after %d requests", st, worthRequests)
		}
	})
}

// TestPrototypeUnlike makes none of programs that would draw the same random numbers.
func TestPrototypeUnlike(t *testing.T) {
	i := &imports{take: time.Second, unlike: true}
	world(t, i.options, func(t *testing.T, s *stub, p *Pool) {
		ask(p, "a")
		rest()
		if st := p.Stats(); st.Done != 1 || st.Prototypes != 0 || i.calls.Load() != 1 {
			t.Errorf("%+v", st)
		}
	})
}

// TestPrototypeBusy starts boxes afresh while the CPUs are busy, and replaces them later
// by boxes from the prototype. They can be claimed until then.
func TestPrototypeBusy(t *testing.T) {
	i := &imports{take: time.Second}
	var busy atomic.Bool
	world(t, func(o *Options) { i.options(o); o.Busy = busy.Load }, func(t *testing.T, s *stub, p *Pool) {
		ask(p, "a")
		rest()
		busy.Store(true)
		create(t, p, spec("a"))
		rest()
		if st := p.Stats(); st.Started != 3 || st.Restored != 1 || st.Ready != 2 || st.Done != 0 {
			t.Errorf("busy: %+v; want two new boxes that were started afresh", st)
		}
		busy.Store(false)
		rest()
		if st := p.Stats(); i.calls.Load() != 1 || st.Restored != 3 || st.Ready != 2 || st.Done != 2 {
			t.Errorf("then: %d imports, %+v; want both replaced", i.calls.Load(), st)
		}
	})
}

// TestPrototypeRoom replaces no box while the machine lacks the memory for one more.
func TestPrototypeRoom(t *testing.T) {
	i := &imports{take: time.Second}
	var busy, short atomic.Bool
	world(t, func(o *Options) {
		i.options(o)
		o.Busy = busy.Load
		o.Room = func(bytes int64) bool { return bytes == 0 || !short.Load() }
	}, func(t *testing.T, s *stub, p *Pool) {
		ask(p, "a")
		rest()
		busy.Store(true)
		create(t, p, spec("a"))
		rest()
		busy.Store(false)
		short.Store(true)
		before := p.Stats()
		rest()
		if st := p.Stats(); st.Restored != before.Restored || st.Ready != before.Ready {
			t.Errorf("without room: %+v, before %+v", st, before)
		}
		short.Store(false)
		time.Sleep(retryAfter)
		rest()
		if st := p.Stats(); st.Done != st.Ready || st.Ready != before.Ready {
			t.Errorf("with room: %+v", st)
		}
	})
}

// TestPrototypeUnfit starts boxes afresh when the prototype does not fit the machine any
// more, and makes another one after a pause.
func TestPrototypeUnfit(t *testing.T) {
	i := &imports{take: time.Second}
	world(t, i.options, func(t *testing.T, s *stub, p *Pool) {
		ask(p, "a")
		rest()
		s.set(&s.noRestore, sandbox.Errorf(sandbox.Unavailable, "a file of the machine has changed"))
		create(t, p, spec("a"))
		rest()
		if st := p.Stats(); st.Prototypes != 0 || st.Ready != 2 || st.Done != 2 || i.calls.Load() != 3 || st.Failures != 0 {
			t.Errorf("%d imports, %+v; want two boxes with their own imports", i.calls.Load(), st)
		}
		if kept := s.kept(); len(kept) != 0 {
			t.Errorf("the snapshots %v are left", kept)
		}
		s.set(&s.noRestore, nil)
		time.Sleep(snapshotPause)
		create(t, p, spec("a"))
		rest()
		if st := p.Stats(); st.Prototypes != 1 || st.Done != st.Ready {
			t.Errorf("%+v after the pause; want another prototype", st)
		}
	})
}

// TestPrototypeFails leaves the box in the pool when there can be no snapshot of it.
func TestPrototypeFails(t *testing.T) {
	i := &imports{take: time.Second}
	world(t, i.options, func(t *testing.T, s *stub, p *Pool) {
		s.set(&s.noSnapshot, sandbox.Errorf(sandbox.Unavailable, "the disk is full"))
		ask(p, "a")
		rest()
		if st := p.Stats(); st.Ready != 1 || st.Done != 1 || st.Prototypes != 0 || st.Started != 1 {
			t.Errorf("%+v; want the box to be kept", st)
		}
		if noted := s.noted(); len(noted) != 1 {
			t.Errorf("the ledger has %v; want the box alone", noted)
		}
	})
}

// TestPrototypeAge replaces a prototype that is a day old.
func TestPrototypeAge(t *testing.T) {
	i := &imports{take: time.Second}
	world(t, i.options, func(t *testing.T, s *stub, p *Pool) {
		ask(p, "a")
		rest()
		first := s.kept()
		p.age()
		rest()
		second := s.kept()
		if len(first) != 1 || len(second) != 1 || first[0] == second[0] || i.calls.Load() != 2 {
			t.Errorf("snapshots %v, a day later %v, %d imports", first, second, i.calls.Load())
		}
	})
}

// TestManyPrototypes bounds their number: the shape with the oldest request has none.
func TestManyPrototypes(t *testing.T) {
	i := &imports{take: time.Second}
	world(t, i.options, func(t *testing.T, s *stub, p *Pool) {
		images := []string{"a", "b", "c", "d", "e"}
		for _, image := range images {
			ask(p, image)
			create(t, p, spec(image))
			rest()
		}
		if st, kept := p.Stats(), s.kept(); st.Prototypes != maxPrototypes || len(kept) != maxPrototypes {
			t.Errorf("%+v, snapshots %v; want %d", st, kept, maxPrototypes)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if sh := p.shapeOfLocked(spec("a")); sh.prototype != nil {
			t.Error("the shape that was not asked for the longest has its prototype still")
		}
	})
}

// TestPrototypeStays retries to remove the files of a prototype.
func TestPrototypeStays(t *testing.T) {
	i := &imports{take: time.Second}
	world(t, i.options, func(t *testing.T, s *stub, p *Pool) {
		ask(p, "a")
		rest()
		s.set(&s.noRemove, errors.New("no"))
		p.age()
		rest()
		if kept := s.kept(); len(kept) != 2 {
			t.Fatalf("snapshots %v; want the old one to be there still", kept)
		}
		s.set(&s.noRemove, nil)
		rest()
		if kept := s.kept(); len(kept) != 1 {
			t.Errorf("snapshots %v; want one", kept)
		}
	})
}
