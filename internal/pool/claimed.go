package pool

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A claimedBox is a box that was handed out. Its receipt was read when it was
// made ready, and nothing about it has changed since; only whoever asks again
// has it read again.
type claimedBox struct {
	driver.Box
	receipt sandbox.Receipt
	asked   atomic.Bool
}

func (b *claimedBox) Unwrap() driver.Box { return b.Box }

func (b *claimedBox) Destroy(ctx context.Context) error {
	b.asked.Store(true)
	return b.Box.Destroy(ctx)
}

func (b *claimedBox) Receipt(ctx context.Context) (sandbox.Receipt, error) {
	if !b.asked.Swap(true) {
		return slices.Clone(b.receipt), nil
	}
	return b.Box.Receipt(ctx)
}
