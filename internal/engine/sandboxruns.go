package engine

import (
	"context"
	"errors"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/excerpt"
	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/engine/run"
	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// This file connects a sandbox to its runs: a liveSandbox is their [run.Life].

// newOfRuns returns the sandbox as its runs use it.
func (b *liveSandbox) newOfRuns() *run.Sandbox {
	return b.e.runs.NewSandbox(run.SandboxOptions{
		ID: b.id, Principal: b.rec.Principal, Image: b.rec.Image, Limits: b.rec.Limits,
		Guest: b.guest, Mount: b.mount, Copy: b.copy, Traffic: b.traffic, Life: b,
	})
}

// addRun adds r to the runs of the sandbox.
func (b *liveSandbox) addRun(r *run.Run) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.stoppedLocked(); err != nil {
		return err
	}
	if err := b.checkRoomLocked(); err != nil {
		return err
	}
	for id, other := range b.runs {
		if other.Undoes() {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "run %s has rollback_on_failure, so sandbox %s takes no other run meanwhile", id, b.id),
				"wait for that run, or stop it")
		}
		if r.Undoes() {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "rollback_on_failure: run %s goes on in sandbox %s", id, b.id), "wait for that run, or stop it")
		}
	}
	if name := r.ServiceName(); name != "" {
		for id, other := range b.runs {
			if other.ServiceName() == name {
				return sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "name: run %s is the service %s already", id, excerpt.Quote(name)),
					"stop that run first, or use another name")
			}
		}
	}
	b.runs.Set(r.ID(), r)
	return nil
}

// checkRoomLocked checks that the sandbox may have one more run or forwarded
// request. b.mu is held.
func (b *liveSandbox) checkRoomLocked() error {
	if n := len(b.runs) + len(b.forwards) - b.ports; n >= b.e.opts.MaxRuns {
		return request.TooManyRuns(n)
	}
	return nil
}

// resumeRun continues a run that another process began.
func (b *liveSandbox) resumeRun(rec store.Run) {
	r := b.ofRuns.Reopen(rec, sync.OnceFunc(b.release))
	b.mu.Lock()
	lives := b.livesLocked()
	if lives {
		b.uses++
		b.runs.Set(rec.ID, r)
	}
	b.mu.Unlock()
	if !lives {
		r.Refuse()
		return
	}
	r.Resume()
}

// Hold keeps the sandbox awake for a run.
func (b *liveSandbox) Hold(ctx context.Context) (release func(), err error) { return b.use(ctx) }

// MayRest arms the timer that pauses the sandbox, if nothing keeps it awake.
func (b *liveSandbox) MayRest() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.restLaterLocked()
}

// Ended removes a run from the runs of the sandbox.
func (b *liveSandbox) Ended(r *run.Run) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.runs.Delete(r.ID())
}

// Status returns why the sandbox stops, or nil, and the number of its runs and
// forwarded requests.
func (b *liveSandbox) Status() (why *verdict.Reason, runs, requests int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.why, len(b.runs), len(b.forwards) - b.ports
}

// GiveUp begins to stop the sandbox.
func (b *liveSandbox) GiveUp(why verdict.Reason) { b.beginStop(why) }

// Incidents returns the driver's counts, and records how many memory kills the
// sandbox had.
func (b *liveSandbox) Incidents(ctx context.Context) (driver.Incidents, bool) {
	in, ok, _ := driver.ReadIncidents(ctx, b.drv)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kills = max(b.kills, in.MemoryKills)
	return in, ok
}

// Explain turns the error of an unreachable guest into the reason why its
// sandbox stopped. It returns err if the sandbox did not stop.
func (b *liveSandbox) Explain(ctx context.Context, err error) error {
	if !errors.Is(err, sandbox.Unavailable) || ctx.Err() != nil {
		return err
	}
	probe, cancel := context.WithTimeout(context.WithoutCancel(ctx), run.EndTimeout)
	defer cancel()
	if b.Dead(probe) {
		b.Lost()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if stopped := b.stoppedLocked(); stopped != nil {
		return stopped
	}
	return err
}
