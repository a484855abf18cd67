package engine

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/snapshot"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
	"github.com/glovebox-dev/glovebox/internal/trace"
)

// quiet refuses a sandbox with more runs than it may have, and cuts off the requests that
// are forwarded to it.
func (b *liveSandbox) quiet(ctx context.Context, runs int) error {
	b.mu.Lock()
	if n := len(b.runs); n > runs {
		b.mu.Unlock()
		return sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "sandbox %s has %d runs going on", b.id, n), "wait for them, or stop them")
	}
	var cut []*forward
	for f := range b.forwards {
		f.cancel()
		cut = append(cut, f)
	}
	b.mu.Unlock()
	for _, f := range cut {
		select {
		case <-f.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Still implements [snapshot.Sandbox].
func (b *liveSandbox) Still(ctx context.Context, do func(context.Context, driver.Box) error) error {
	release, err := b.use(ctx)
	if err != nil {
		return err
	}
	defer release()
	// A sandbox of a snapshot gets a copy of the workspace, which is to have the files
	// that this box has.
	if err := b.copy.Out(ctx); err != nil {
		return err
	}
	return b.still(ctx, 0, stillTime, do)
}

const (
	// stillTime is how long a caller waits for the other uses of a sandbox to end, and
	// undoTime how long a run does that is undone.
	stillTime = 2 * time.Second
	undoTime  = 30 * time.Second
	stillStep = 10 * time.Millisecond
)

// still is Still for a caller that uses the sandbox already, with that many runs of its
// own. It waits for the other uses.
func (b *liveSandbox) still(ctx context.Context, runs int, wait time.Duration, do func(context.Context, driver.Box) error) error {
	for ; ; wait -= stillStep {
		if err := b.quiet(ctx, runs); err != nil {
			return err
		}
		b.power.Lock()
		b.mu.Lock()
		alone := b.uses == 1 && len(b.runs) == runs
		b.mu.Unlock()
		if alone {
			break // other uses wait for power
		}
		b.power.Unlock()
		if wait <= 0 || ctx.Err() != nil {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "sandbox %s is in use", b.id), "try again when its requests have ended")
		}
		time.Sleep(stillStep)
	}
	defer b.power.Unlock()
	// A caller that leaves must not cut a state off.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), coldPauseTimeout)
	defer cancel()
	err := do(ctx, b.drv)
	if driver.IsGone(err) {
		return b.gone(err)
	}
	if err != nil {
		b.paused = b.e.features.Pause // a rollback that failed may have left it so: the next use resumes it
	}
	return err
}

// A usedSandbox is a sandbox that its caller uses already, with that many runs.
type usedSandbox struct {
	*liveSandbox
	runs int
	wait time.Duration // for other uses
}

// Still implements [snapshot.Sandbox].
func (b usedSandbox) Still(ctx context.Context, do func(context.Context, driver.Box) error) error {
	return b.still(ctx, b.runs, b.wait, do)
}

// prepareUndo takes the snapshot for a run that begins, if its request asks for one. The
// caller uses the sandbox.
func (b *liveSandbox) prepareUndo(ctx context.Context, req *sandbox.RunRequest) (id string, err error) {
	if !req.RollbackOnFailure {
		return "", nil
	}
	err = trace.Do(ctx, "take snapshot", func(ctx context.Context) (err error) {
		id, err = snapshot.TakeForRun(ctx, b.e.Keeper, b.rec.Principal, usedSandbox{b, 0, stillTime})
		return err
	})
	return id, sandbox.Wrap(err, "rollback_on_failure", "")
}

// Undo gives the sandbox the state of a run's snapshot.
func (b *liveSandbox) Undo(ctx context.Context, id string) error {
	return snapshot.Undo(ctx, b.e.Keeper, usedSandbox{b, 1, undoTime}, id)
}

// Forget removes a run's snapshot.
func (b *liveSandbox) Forget(ctx context.Context, id string) error {
	return snapshot.Forget(ctx, b.e.Keeper, id)
}

// Setup implements [snapshot.Sandbox].
func (b *liveSandbox) Setup() store.SnapshotSetup {
	b.mu.Lock()
	defer b.mu.Unlock()
	return store.SnapshotSetup{Image: b.rec.Image, ImageID: cmp.Or(b.image, b.rec.Image), Network: b.rec.Network, Limits: b.rec.Limits, Workspace: b.rec.Workspace, Writable: b.writable, Labels: b.rec.Labels}
}

// Env implements [snapshot.Sandbox].
func (b *liveSandbox) Env() map[string]string { return maps.Clone(b.env) }

// EndRuns implements [snapshot.Sandbox].
func (b *liveSandbox) EndRuns(ctx context.Context) error {
	b.mu.Lock()
	ids := slices.Collect(maps.Keys(b.runs))
	b.mu.Unlock()
	for _, id := range ids {
		if _, err := b.e.StopRun(ctx, b.rec.Principal, id); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) newSnapshots() *snapshot.Keeper {
	return snapshot.New(snapshot.Options{
		Driver: e.drv, Name: e.name, Owner: e.owner.ID(), Records: e.store, Log: e.log, Metrics: e.opts.Metrics, Now: e.now, Limits: e.opts.Snapshots,
		Find: func(ctx context.Context, p sandbox.Principal, id string) (snapshot.Sandbox, error) {
			return e.usable(ctx, p, id)
		},
		Check: e.accounts.CheckSnapshot,
		View:  e.Get, Create: e.Create, CopyWorkspace: e.mounts.CopyWorkspace, RemoveWorkspace: e.DeleteWorkspace,
	})
}
