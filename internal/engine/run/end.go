package run

import (
	"context"
	"errors"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/runlog"
	"github.com/glovebox-dev/glovebox/internal/engine/traffic"
	"github.com/glovebox-dev/glovebox/internal/engine/verdict"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
	"github.com/glovebox-dev/glovebox/internal/trace"
)

// lookFor is how many bytes at the end of a run's output are searched for
// hosts.
const lookFor = 16 << 10

// finish settles and records the run's end.
func (r *Run) finish(end *guestapi.End) {
	r.setDeadline(0)
	r.going.End(nil)
	uncopied := r.copyWorkspace() // has its own timeout
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.set.ctx), cleanupTimeout)
	defer cancel()
	ctx, settling := trace.Start(trace.Into(ctx, r.ctx), "settle")
	defer r.span.End(nil)
	defer settling.End(nil)
	r.closeLog()
	changes := r.lookInside(ctx, r.lookAtWorkspace(ctx))
	r.forgetBaseline()
	judged, code, usage := r.judge(ctx, end)
	if uncopied != nil {
		judged = verdict.Unsaved(judged, uncopied)
	}
	r.span.Set("verdict", string(judged.Code))

	xs := r.log.Extents()
	used := r.networkUse(ctx)
	if judged.Code == sandbox.Failed {
		verdict.Advise(&judged, r.in.Life.Policy(), r.in.Life.MaxPolicy(), used, r.Files().Tail(xs, lookFor))
	}
	r.keepPreviews(changes)
	r.keepPlots()
	rolled := r.undo(ctx, judged.Code != sandbox.OK)
	if rolled != nil {
		var more context.CancelFunc // it may have taken long
		ctx, more = context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer more()
		if rolled.Done {
			judged = verdict.Undone(judged)
			if !rolled.Workspace {
				changes = nil
			}
			if r.x != nil {
				r.setContext(func(c *sandbox.RunContext) { c.StateLost = false })
			}
		}
	}
	r.mu.Lock()
	r.rec.Rollback = rolled
	r.rec.Network = used
	r.moveLocked(finished)
	r.rec.Verdict, r.rec.ExitCode, r.rec.Usage = judged, code, usage
	r.rec.Ended, r.rec.Changes = r.set.opts.Now(), changes
	r.rec.StdoutBytes, r.rec.StderrBytes = xs[runlog.Stdout].Total, xs[runlog.Stderr].Total
	r.rec.KeptBytes = xs[runlog.Stdout].Kept() + xs[runlog.Stderr].Kept()
	r.rec.KeptBytes += r.results.Kept()
	if r.x != nil {
		r.x.waits = nil
	}
	rec := r.rec
	r.mu.Unlock()
	var finished bool
	err := trace.Do(ctx, "record end", func(ctx context.Context) (err error) {
		finished, err = r.record(ctx, rec)
		return err
	})
	if err == nil && !finished {
		// Another process ended the sandbox, and the run with it.
		if stored, err := r.set.opts.Records.Run(ctx, rec.ID); err == nil {
			r.mu.Lock()
			r.rec.Verdict, r.rec.ExitCode = stored.Verdict, stored.ExitCode
			r.mu.Unlock()
		}
	}
	if err != nil {
		r.set.opts.Log.Error("record end of run", "run", rec.ID, "error", err)
		r.mu.Lock()
		r.rec.Verdict = verdict.Unkept("result", err)
		r.mu.Unlock()
	}
	r.forgetUndo(ctx)
	r.in.Life.Ended(r)
	stops := r.in.stops()
	r.set.opts.Metrics.RunEnded(r.language, r.verdict(), rec.Ended.Sub(rec.Started), rec.StdoutBytes, rec.StderrBytes)
	r.set.retire(rec.ID)
	r.set.shelf.Keep(rec, r.room)
	close(r.done)
	r.cancel()
	if !stops {
		r.cleanUp(ctx)
	}
	r.release()
}

// networkUse returns the hosts that the run's sandbox reached since the run began,
// or nil.
func (r *Run) networkUse(ctx context.Context) *sandbox.RunNetwork {
	if !r.countsReached {
		return nil
	}
	after, ok := r.in.Traffic.Read(ctx)
	if !ok {
		return nil
	}
	return traffic.Since(r.reached, after)
}

// verdict returns the code of the run's current verdict.
func (r *Run) verdict() sandbox.VerdictCode {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rec.Verdict.Code
}

// record writes the run's end to the store, with a few retries. The end becomes
// visible only afterwards, because the next process must know it too.
func (r *Run) record(ctx context.Context, rec store.Run) (finished bool, err error) {
	for _, wait := range []time.Duration{0, 100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second, 4 * time.Second} {
		if wait > 0 {
			select {
			case <-ctx.Done():
				return false, errors.Join(err, ctx.Err())
			case <-time.After(wait):
			}
		}
		// WithoutCancel: database/sql starts a goroutine for a context that can
		// end.
		finished, err = r.set.opts.Records.FinishRun(context.WithoutCancel(ctx), rec)
		if err == nil || !errors.Is(err, sandbox.Exhausted) {
			return finished, err
		}
	}
	return finished, err
}

// copyWorkspace copies the run's changes to the workspace, if the sandbox has a
// copy of that, and returns why it could not. A sandbox that is being stopped
// copies them itself.
func (r *Run) copyWorkspace() error {
	if r.in.Copy == nil || r.in.stops() {
		return nil
	}
	err := r.in.Copy.Out(context.WithoutCancel(r.set.ctx))
	if errors.Is(err, sandbox.Exhausted) {
		r.mu.Lock()
		if r.fate == verdict.FateNone {
			r.fate, r.broken = verdict.FateDiskFull, err
		}
		r.mu.Unlock()
		return nil
	}
	if err != nil {
		r.set.opts.Log.Error("copy workspace after a run", "run", r.rec.ID, "error", err)
		err = r.in.Life.Explain(context.WithoutCancel(r.set.ctx), err)
	}
	return err
}

// lookAtWorkspace returns what changed in the workspace. If the workspace is
// now over its quota, the run ends as disk-full, even if it ended before the
// watcher saw that.
func (r *Run) lookAtWorkspace(ctx context.Context) *sandbox.Changes {
	changes, err := r.in.Mount.End(ctx, r, r.workspace)
	if errors.Is(err, sandbox.Exhausted) {
		r.mu.Lock()
		if r.fate == verdict.FateNone {
			r.fate, r.broken = verdict.FateDiskFull, err
		}
		r.mu.Unlock()
	} else if err != nil {
		r.set.opts.Log.Error("look at workspace", "run", r.rec.ID, "error", err)
	}
	return changes
}

func (r *Run) closeLog() {
	if err := r.log.Close(); err != nil {
		r.set.opts.Log.Error("close log", "run", r.rec.ID, "error", err)
	}
}

// judge collects the facts about the run's end and settles its verdict.
func (r *Run) judge(ctx context.Context, end *guestapi.End) (sandbox.Verdict, *int, sandbox.Usage) {
	r.mu.Lock()
	ending := verdict.Ending{Fate: r.fate, Broken: r.broken, Timeout: r.rec.Timeout, Limits: r.in.Limits}
	ending.Lasted = r.set.opts.Now().Sub(r.rec.Started)
	if end != nil {
		ending.End = *end
	}
	if ending.End.Context && r.x != nil {
		ending.Exception = r.x.fail
	}
	r.mu.Unlock()
	succeeded := ending.End.Status == guestapi.EndOK
	if r.fresh && ending.End.Context && !succeeded {
		if x := ending.Exception; x != nil {
			ending.MissesState = x.MissesState()
		} else {
			ending.MissesState = sandbox.MissesFile(r.Files().Tail(r.log.Extents(), lookFor))
		}
	}
	if !succeeded {
		why, runs, _ := r.in.Life.Status()
		ending.Why, ending.Alone = why, runs == 1
		if r.baseline != nil {
			<-r.baseline
			ending.Before, ending.Counted = r.before, r.counted
		}
		if ending.Counted && ending.Why == nil {
			ending.After, ending.Counted = r.in.Life.Incidents(ctx)
		}
		if ending.Fate == verdict.FateNone {
			// Another process may have killed it on behalf of its owner.
			if rec, err := r.set.opts.Records.Run(ctx, r.rec.ID); err == nil && rec.StopRequested {
				ending.Fate = verdict.FateCancelled
			}
		}
	}
	v, code := verdict.Settle(ending)
	return v, code, ending.Usage()
}

// Kill ends the run's process tree; the first fate counts. It returns when the
// run has finished or is let go. If the run does not end, Kill begins to
// destroy its sandbox and returns.
func (r *Run) Kill(f verdict.Fate, broken error) {
	r.mu.Lock()
	if r.fate == verdict.FateNone && (r.state == beginning || r.state == going) {
		r.fate, r.broken = f, broken
	}
	r.mu.Unlock()
	r.endService()
	r.log.Hurry()
	select {
	case <-r.done:
		return
	default:
	}
	ctx, cancel := context.WithTimeout(r.ctx, KillTimeout)
	defer cancel()
	if r.svc != nil {
		// The sandbox may rest. One that stops needs no waking.
		if release, err := r.in.Life.Hold(ctx); err == nil {
			defer release()
		}
	}
	// The call may outlast its context if the guest is stuck. The end of the
	// sandbox then ends the call.
	overdue := time.AfterFunc(KillTimeout+EndTimeout, func() { r.giveUp(errors.New("the call does not return")) })
	patience, err := r.signal(ctx, f)
	overdue.Stop()
	if err == nil || errors.Is(err, sandbox.NotFound) || driver.IsGone(err) {
		select {
		case <-r.done:
			return
		case <-time.After(patience):
		}
	}
	r.giveUp(err)
}

// giveUp begins to destroy the sandbox of a run that cannot be ended, unless the
// run has ended, is being undone, or is let go.
func (r *Run) giveUp(err error) {
	r.mu.Lock()
	leaves := r.leavesLocked()
	r.mu.Unlock()
	select {
	case <-r.done:
		return
	default:
		if leaves || r.undoing.Load() {
			return
		}
	}
	r.set.opts.Log.Error("the guest does not end a run; destroying its sandbox", "sandbox", r.in.ID, "run", r.rec.ID, "error", err)
	r.in.Life.GiveUp(verdict.Reason{
		Cause: "the sandbox did not answer when a run was to be ended",
		Code:  sandbox.SandboxLost,
		Next:  "make a new sandbox",
	})
}

// EndFull begins to end the run because of its full workspace. A run that is
// still beginning is left to a later call.
func (r *Run) EndFull(why error) {
	r.mu.Lock()
	ends := (r.state == going || r.state == leaving) && r.fate == verdict.FateNone
	r.mu.Unlock()
	if ends {
		r.set.opts.Work(func() { r.Kill(verdict.FateDiskFull, why) })
	}
}
