package run

import (
	"errors"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/engine/mount"
)

// A run may outlive the process that began it. The next process must be able to
// say what the run changed. So the state of the workspace before the run is
// saved in a file beside the run's output. That happens only after
// KeepBaselineAfter, so that short runs, which are most of them, cost nothing.

// A baselineFile is the state of saving a run's baseline.
type baselineFile struct {
	timer *time.Timer // nil for a run that cannot outlive the process

	mu   sync.Mutex
	kept bool
	over bool // the run has ended
}

// KeepBaselineAfter is how long a run lasts before its baseline is saved.
const KeepBaselineAfter = time.Second

// keepBaselineSoon saves the baseline after a while, if the run is still in
// progress.
func (r *Run) keepBaselineSoon() {
	if r.workspace != nil && r.set.opts.Detached {
		r.keeper.timer = time.AfterFunc(KeepBaselineAfter, func() { r.set.opts.Spawn(r.keepBaseline) })
	}
}

// keepBaseline saves the baseline now, unless it is saved already or not
// needed.
func (r *Run) keepBaseline() {
	k := &r.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.timer == nil || k.kept || k.over {
		return
	}
	k.timer.Stop()
	k.kept = true
	f, err := r.Files().CreateBaseline()
	if err == nil {
		err = errors.Join(r.workspace.Save(f), f.Close())
	}
	if err != nil {
		// The next process then knows less about the changes.
		r.set.opts.Log.Error("keep the earlier state of the workspace", "run", r.rec.ID, "error", err)
	}
}

// forgetBaseline removes the saved baseline of a run that has ended.
func (r *Run) forgetBaseline() {
	k := &r.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	k.over = true
	if k.timer != nil {
		k.timer.Stop()
	}
	if !k.kept {
		return
	}
	if err := r.Files().RemoveBaseline(); err != nil {
		r.set.opts.Log.Error("remove the earlier state of the workspace", "run", r.rec.ID, "error", err)
	}
}

// resumeBaseline restores the baseline of a run that another process began. If
// that process was killed before it saved one, only the start time of the run
// is known. Files changed since then are then reported as created, and removed
// files are not reported.
func (r *Run) resumeBaseline() {
	m := r.in.Mount
	if m == nil {
		return
	}
	r.keeper.kept = true // in any case there is nothing more to save
	b, err := r.keptBaseline()
	if err != nil {
		r.set.opts.Log.Warn("the earlier state of the workspace is not known", "run", r.rec.ID, "error", err)
		if b, err = m.Main().BaselineSince(r.ctx, r.rec.Started); err != nil {
			r.set.opts.Log.Error("look at workspace", "run", r.rec.ID, "error", err)
			return
		}
	}
	m.Resume(r)
	r.workspace = b
}

func (r *Run) keptBaseline() (*mount.Baseline, error) {
	f, err := r.Files().OpenBaseline()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return mount.ReadBaseline(f)
}
