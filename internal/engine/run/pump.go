package run

import (
	"context"
	"errors"
	"time"

	"github.com/glovebox-dev/glovebox/internal/engine/guestlink"
	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// pump keeps what the run's program does until it ends, and then finishes the
// run.
func (r *Run) pump(stream guestlink.Events) {
	var end *guestapi.End
	if r.svc != nil {
		end = r.keepRunning(stream)
	} else {
		end = r.listen(stream)
	}
	r.mu.Lock()
	leaves := r.leavesLocked() && end == nil
	if leaves {
		r.moveLocked(left)
	}
	r.mu.Unlock()
	if leaves {
		r.in.Mount.Leave(r)
		r.closeLog()
		r.cancel()
		r.room.Release()
		close(r.done)
		return
	}
	r.finish(end)
}

// listen keeps what the run's program does until it ends, and returns its end. It
// returns nil if the program's stream broke for good.
func (r *Run) listen(stream guestlink.Events) *guestapi.End {
	var end *guestapi.End
	for end == nil && stream != nil {
		ev, err := stream.Next()
		switch {
		case err != nil:
			r.lose(err)
			stream.Close()
			stream = r.reconnect()
		case ev.End != nil:
			end = ev.End
			r.hasEnded(end)
			if r.plain {
				end = verdict.AsByShell(end)
			}
			stream.Close()
		default:
			r.heard(ev)
		}
	}
	return end
}

// lose ends a run of which an event is lost, because that is too long: the guest
// sends it no second time.
func (r *Run) lose(err error) {
	if errors.Is(err, guestapi.ErrLongEvent) && r.ctx.Err() == nil {
		r.set.opts.Log.Warn("read event", "run", r.rec.ID, "error", err)
		r.spoil(err)
	}
}

// spoil ends a run whose output could not be kept. The fate is set at once, so
// it holds even if the run ends by itself before it is killed.
func (r *Run) spoil(err error) {
	r.mu.Lock()
	if r.fate == verdict.FateNone {
		r.fate, r.broken = verdict.FateBroken, err
	}
	r.mu.Unlock()
	r.set.opts.Work(func() { r.Kill(verdict.FateBroken, err) })
}

// reconnect attaches to the run's process again after its stream broke. It
// returns nil if there is no process left to attach to.
func (r *Run) reconnect() guestlink.Events {
	for _, wait := range []time.Duration{0, 50 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second} {
		select {
		case <-r.ctx.Done():
			return nil
		case <-time.After(wait):
		}
		if r.in.stops() {
			return nil
		}
		ctx, cancel := context.WithTimeout(r.ctx, EndTimeout)
		dead := r.in.Life.Dead(ctx)
		cancel()
		if dead {
			r.in.Life.Lost()
			return nil
		}
		stream, err := r.connectAwake()
		if err == nil || r.ctx.Err() != nil {
			return stream
		}
		r.set.opts.Log.Warn("attach to run again", "run", r.rec.ID, "error", err)
		if errors.Is(err, sandbox.NotFound) {
			return nil
		}
	}
	r.in.Life.Lost()
	return nil
}

// connectAwake is connect in a sandbox that may rest because of its service: a paused
// guest does not answer.
func (r *Run) connectAwake() (guestlink.Events, error) {
	if r.svc != nil {
		release, err := r.in.Life.Hold(r.ctx)
		if err != nil {
			return nil, err
		}
		defer release()
	}
	return r.connect()
}
