package snapshot

import (
	"context"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/metrics"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// TakeForRun takes a snapshot of a sandbox for a run that begins. It counts among those
// of its principal, who does not see it. Forget removes it, and Sweep if no process does.
// The errors are those of TakeSnapshot. It is no method, because the engine has the
// methods of a Keeper, and no edge may call this.
func TakeForRun(ctx context.Context, k *Keeper, p sandbox.Principal, b Sandbox) (id string, err error) {
	rec, err := k.take(ctx, p, b, store.Snapshot{Internal: true})
	return rec.ID, err
}

// Undo gives a sandbox the state of a snapshot that TakeForRun took.
func Undo(ctx context.Context, k *Keeper, b Sandbox, id string) (err error) {
	defer k.measure(metrics.SnapshotRolledBack, time.Now(), &err)
	err = b.Still(ctx, func(ctx context.Context, box driver.Box) error {
		return driver.Rollback(ctx, box, sandbox.DriverSnapshot(id))
	})
	if err == nil {
		k.opts.Log.Info("rolled back sandbox after a failed run", "snapshot", id, "sandbox", b.ID())
	}
	return err
}

// Forget removes a snapshot that TakeForRun took. After an error, the sweep removes it
// once its run has ended.
func Forget(ctx context.Context, k *Keeper, id string) error {
	rec := store.Snapshot{}
	rec.ID = id
	return k.remove(ctx, rec)
}
