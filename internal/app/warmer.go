package app

import (
	"context"
	"errors"
	"log/slog"

	"github.com/glovebox-dev/glovebox/internal/engine"
	"github.com/glovebox-dev/glovebox/internal/pool"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// A warmer is a pool with its owner record in the store.
type warmer struct {
	*pool.Pool
	owner *store.Owner
}

// newWarmer makes a pool with these options, and an owner record as its ledger.
func newWarmer(ctx context.Context, db *store.Store, opts pool.Options) (*warmer, error) {
	owner, err := db.RegisterOwner(ctx, false)
	if err != nil {
		return nil, err
	}
	opts.Ledger = owner
	p, err := pool.New(opts)
	if err != nil {
		return nil, errors.Join(err, owner.Release(ctx))
	}
	return &warmer{p, owner}, nil
}

// run keeps boxes warm until ctx ends. It begins with one of the usual shape.
func (w *warmer) run(ctx context.Context, e *engine.Engine, log *slog.Logger) {
	if usual, err := e.Usual(ctx); err != nil {
		log.Warn("keep no sandbox ready", "error", err)
	} else if usual != nil {
		w.Keep(usual)
	}
	if err := w.Run(ctx); err != nil && ctx.Err() == nil {
		log.Error("pool", "error", err)
	}
}

// close releases the owner record. No warm box may be left.
func (w *warmer) close(ctx context.Context) error {
	return w.owner.Release(ctx)
}
