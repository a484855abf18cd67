package lost

import (
	"context"
	"log/slog"
	"sync"
	"time"

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
	runs   map[run]*time.Timer
	closed bool
	stops  sync.WaitGroup
}

// A run is a run of a principal.
type run struct {
	principal sandbox.Principal
	id        string
}

// Keep lets a run go on for the time of grace, or stops it at once after Close.
func (g *Grace) Keep(p sandbox.Principal, runID string) {
	r := run{p, runID}
	g.mu.Lock()
	defer g.mu.Unlock()
	if old := g.runs[r]; old != nil {
		old.Stop()
	}
	if g.runs == nil {
		g.runs = map[run]*time.Timer{}
	}
	after := g.Time
	if g.closed {
		after = 0
	}
	var timer *time.Timer
	timer = time.AfterFunc(after, func() {
		g.mu.Lock()
		mine := g.runs[r] == timer
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
	g.runs[r] = timer
}

// Claim ends the grace of a run, which then goes on. It does nothing for other runs.
func (g *Grace) Claim(p sandbox.Principal, runID string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if timer := g.runs[run{p, runID}]; timer != nil {
		timer.Stop()
		delete(g.runs, run{p, runID})
	}
}

// End stops the unclaimed runs of a principal at once, and waits for that.
func (g *Grace) End(p sandbox.Principal) {
	g.end(func(r run) bool { return r.principal == p })
}

// Close stops all unclaimed runs at once, and waits for that.
func (g *Grace) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.end(func(run) bool { return true })
	g.stops.Wait()
}

func (g *Grace) end(which func(run) bool) {
	var ending sync.WaitGroup
	defer ending.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	for r, timer := range g.runs {
		if which(r) {
			timer.Stop()
			delete(g.runs, r)
			ending.Go(func() { g.stop(r) })
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
