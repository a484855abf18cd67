package snapshot

import (
	"context"
	"errors"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/metrics"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// TakeForRun takes a snapshot of a sandbox for a run that begins. It counts among those
// of its principal, who does not see it. Undo removes it, and Sweep if no process does.
// The errors are those of TakeSnapshot. It is no method, because the engine has the
// methods of a Keeper, and no edge may call this.
func TakeForRun(ctx context.Context, k *Keeper, p sandbox.Principal, b Sandbox) (id string, err error) {
	rec, err := k.take(ctx, p, b, store.Snapshot{Internal: true})
	return rec.ID, err
}

// Undo ends the use of a snapshot that TakeForRun took: it gives the sandbox the state of
// it, if roll, and removes it in any case.
func Undo(ctx context.Context, k *Keeper, b Sandbox, id string, roll bool) error {
	var rolled error
	if roll {
		begun := time.Now()
		rolled = b.Still(ctx, func(ctx context.Context, box driver.Box) error {
			return driver.Rollback(ctx, box, sandbox.DriverSnapshot(id))
		})
		k.measure(metrics.SnapshotRolledBack, begun, &rolled)
	}
	if rolled == nil && roll {
		k.opts.Log.Info("rolled back sandbox after a failed run", "snapshot", id, "sandbox", b.ID())
	}
	rec := store.Snapshot{}
	rec.ID = id
	err := k.remove(ctx, rec)
	if err != nil && roll {
		// The sweep tries again. The caller asked for the rollback.
		k.opts.Log.Error("remove the snapshot of a run", "snapshot", id, "error", err)
		err = nil
	}
	return errors.Join(rolled, err)
}
