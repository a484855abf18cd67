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
)

// quiet refuses a sandbox with runs, and cuts off the requests that are forwarded to it.
func (b *liveSandbox) quiet(ctx context.Context) error {
	b.mu.Lock()
	if len(b.runs) > 0 {
		n := len(b.runs)
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
	if err := b.quiet(ctx); err != nil {
		return err
	}
	for tries := 0; ; tries++ {
		b.power.Lock()
		b.mu.Lock()
		alone := b.uses == 1 && len(b.runs) == 0
		b.mu.Unlock()
		if alone {
			break // other uses wait for power
		}
		b.power.Unlock()
		if tries == 200 || ctx.Err() != nil {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "sandbox %s is in use", b.id), "try again when its requests have ended")
		}
		time.Sleep(10 * time.Millisecond)
	}
	defer b.power.Unlock()
	// A caller that leaves must not cut a state off.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), coldPauseTimeout)
	defer cancel()
	if err = do(ctx, b.drv); driver.IsGone(err) {
		return b.gone(err)
	}
	if err != nil {
		b.paused = b.e.features.Pause // a rollback that failed may have left it so: the next use resumes it
	}
	return err
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
		Driver: e.drv, Name: e.name, Owner: e.owner.ID(), Records: e.store, Log: e.log, Now: e.now, Limits: e.opts.Snapshots,
		Find: func(ctx context.Context, p sandbox.Principal, id string) (snapshot.Sandbox, error) {
			return e.usable(ctx, p, id)
		},
		View: e.Get, Create: e.Create, CopyWorkspace: e.mounts.CopyWorkspace, RemoveWorkspace: e.DeleteWorkspace,
	})
}
