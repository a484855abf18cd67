package pool

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A claimedBox is a warm box that was handed out. The pool read its receipt when
// it made the box, and the box has not changed since. So the first call of
// Receipt returns this receipt, and later calls read it again.
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
