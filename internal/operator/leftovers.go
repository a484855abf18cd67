package operator

import (
	"context"
	"slices"

	"github.com/glovebox-dev/glovebox/internal/driver"
)

// RemoveLeftovers removes leftovers of ended processes. It returns their names, and the sandboxes that wait
// for a server to take them over.
func (o *Operator) RemoveLeftovers(ctx context.Context) (removed, waiting []string, err error) {
	before, err := o.remains(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := o.engine.Sweep(ctx); err != nil {
		return nil, nil, err
	}
	after, err := o.remains(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, id := range before {
		if !slices.Contains(after, id) {
			removed = append(removed, "sandbox "+id)
		}
	}
	others, err := driver.Leftovers(ctx, o.driver, true)
	if err != nil {
		return nil, nil, err
	}
	waiting, err = o.Waiting(ctx)
	return append(removed, others...), waiting, err
}

// Waiting returns the sandboxes of this driver that wait for a server to take them
// over, because no process holds them.
func (o *Operator) Waiting(ctx context.Context) ([]string, error) {
	live, err := o.store.LiveSandboxes(ctx)
	if err != nil {
		return nil, err
	}
	var waiting []string
	for _, rec := range live {
		alive, err := o.store.OwnerAlive(rec.Owner)
		if err != nil {
			return nil, err
		}
		if !alive && rec.Driver == o.driver.Info().Name {
			waiting = append(waiting, rec.ID)
		}
	}
	return waiting, nil
}

// remains returns the sandboxes that are live in the store, or that the driver
// lists.
func (o *Operator) remains(ctx context.Context) ([]string, error) {
	ids, err := o.driver.List(ctx)
	if err != nil {
		return nil, err
	}
	live, err := o.store.LiveSandboxes(ctx)
	if err != nil {
		return nil, err
	}
	for _, rec := range live {
		if rec.Driver == o.driver.Info().Name {
			ids = append(ids, rec.ID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}
