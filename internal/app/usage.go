package app

import (
	"context"
	"errors"

	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/statedir"
	"github.com/glovebox-dev/glovebox/internal/store"
	"github.com/glovebox-dev/glovebox/internal/usage"
)

// Usage returns what the principals of a state directory used, for its operator. It
// needs no driver.
func Usage(ctx context.Context, c config.Config, q usage.Query) (rows []usage.Row, err error) {
	if err := statedir.Make(c.StateDir, store.FileName); err != nil {
		return nil, err
	}
	db, err := store.Open(ctx, store.Options{Dir: c.StateDir})
	if err != nil {
		return nil, err
	}
	rows, err = db.Usage(ctx, q)
	return rows, errors.Join(err, db.Close())
}
