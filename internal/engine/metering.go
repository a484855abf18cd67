package engine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/glovebox-dev/glovebox/internal/engine/account"
	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// metered returns the box of the sandbox, which has started.
func (b *liveSandbox) metered() account.Box {
	return account.Box{ID: b.id, Box: b.drv, Traffic: b.traffic}
}

// resting returns when the sandbox was saved on disk, or zero if it is not there, and
// reports whether a sweep has counted it since.
func (b *liveSandbox) resting() (saved time.Time, counted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rec.State != sandbox.Hibernated {
		return time.Time{}, false
	}
	saved = b.rec.Hibernation.Saved
	return saved, !saved.IsZero() && b.counted.Equal(saved)
}

// measurable returns the sandboxes of this process, except those that are being stopped.
func (e *Engine) measurable() []*liveSandbox {
	e.mu.Lock()
	live := slices.Collect(maps.Values(e.sandboxes))
	e.mu.Unlock()
	return slices.DeleteFunc(live, func(b *liveSandbox) bool {
		if !b.started() {
			return true
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		return !b.livesLocked()
	})
}

// Loads returns what a principal's sandboxes in this process use, as far as their driver
// measures it. It is no use of them, and wakes none.
func (e *Engine) Loads(ctx context.Context, p sandbox.Principal) map[string]sandbox.Load {
	var boxes []account.Box
	for _, b := range e.measurable() {
		if b.rec.Principal == p {
			boxes = append(boxes, b.metered())
		}
	}
	return e.accounts.Loads(ctx, boxes)
}

// sweepUsage counts what the sandboxes of this process use, except those that are being
// stopped: their stops count them. It stops the sandboxes of principals that are over a
// limit then.
func (e *Engine) sweepUsage(ctx context.Context) error {
	live := e.measurable()
	saved := make([]time.Time, len(live))
	var boxes []account.Box
	var principals []sandbox.Principal
	for i, b := range live {
		box := b.metered()
		saved[i], box.Rests = b.resting()
		boxes, principals = append(boxes, box), append(principals, b.rec.Principal)
	}
	err := e.accounts.Sweep(ctx, boxes)
	if err == nil {
		for i, b := range live {
			b.mu.Lock()
			b.counted = saved[i]
			b.mu.Unlock()
		}
	}
	over, overErr := e.accounts.Over(ctx, principals)
	for _, b := range live {
		if why := over[b.rec.Principal]; why != nil {
			b.beginStop(verdict.Reason{
				Cause: "the sandbox was stopped at a limit: " + why.Error(), Code: sandbox.SandboxLost, Next: sandbox.HintOf(why),
			})
		}
	}
	return errors.Join(err, overErr)
}
