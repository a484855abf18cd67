package lost

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// stopTimeout bounds the stop of one run.
const stopTimeout = 10 * time.Second

// A Grace stops runs that no call waits for, after a time in which another call may
// claim them. It is safe for concurrent use.
type Grace struct {
	// Time is how long a run goes on.
	Time time.Duration
	// Stop stops a run. It is idempotent.
	Stop func(ctx context.Context, p sandbox.Principal, runID string) error
	Log  *slog.Logger

	mu     sync.Mutex
	runs   map[run]*wait
	closed bool
	stops  sync.WaitGroup
}

// A wait is the grace of a run: it ends at the timer.
type wait struct {
	*time.Timer
	identity auth.Identity
	keyed    bool
}

// A run is a run of a principal.
type run struct {
	principal sandbox.Principal
	id        string
}

// Keep lets a run of a caller go on for the time of grace, or stops it at once after
// Close. keyed says that the caller can find the run in a later process.
func (g *Grace) Keep(id auth.Identity, runID string, keyed bool) {
	r := run{id.Principal, runID}
	g.mu.Lock()
	defer g.mu.Unlock()
	if old := g.runs[r]; old != nil {
		old.Stop()
	}
	if g.runs == nil {
		g.runs = map[run]*wait{}
	}
	if g.closed && keyed {
		return
	}
	after := g.Time
	if g.closed {
		after = 0
	}
	w := &wait{identity: id, keyed: keyed}
	w.Timer = time.AfterFunc(after, func() {
		g.mu.Lock()
		mine := g.runs[r] == w
		if mine {
			delete(g.runs, r)
			g.stops.Add(1)
		}
		g.mu.Unlock()
		if mine {
			defer g.stops.Done()
			g.stop(r)
		}
	})
	g.runs[r] = w
}

// Busy reports whether a run is in grace.
func (g *Grace) Busy() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.runs) > 0
}

// Claim ends the grace of a run, which then goes on. It does nothing for other runs.
func (g *Grace) Claim(p sandbox.Principal, runID string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w := g.runs[run{p, runID}]; w != nil {
		w.Stop()
		delete(g.runs, run{p, runID})
	}
}

// End stops the unclaimed runs of all callers for whose identity gone returns true. It
// does not wait for that.
func (g *Grace) End(gone func(auth.Identity) bool) {
	g.end(func(w *wait) bool { return gone(w.identity) })
}

// Close stops all unclaimed runs at once, except those with a key, and waits for all
// stops.
func (g *Grace) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.end(func(*wait) bool { return true })
	g.stops.Wait()
}

// Wait waits for the stops that End began.
func (g *Grace) Wait() { g.stops.Wait() }

func (g *Grace) end(which func(*wait) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for r, w := range g.runs {
		if !which(w) {
			continue
		}
		w.Stop()
		delete(g.runs, r)
		if !g.closed || !w.keyed {
			g.stops.Go(func() { g.stop(r) })
		}
	}
}

func (g *Grace) stop(r run) {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := g.Stop(ctx, r.principal, r.id); err != nil && sandbox.KindOf(err) != sandbox.NotFound {
		g.Log.Warn("stop a run that its caller gave up", "run", r.id, "error", err)
	}
}
