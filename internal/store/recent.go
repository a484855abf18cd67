package store

import (
	"context"
	"slices"
)

// RecentRuns returns the records of the last n runs of a sandbox, oldest first.
func (s *Store) RecentRuns(ctx context.Context, sandboxID string, n int) ([]Run, error) {
	list, err := s.runs(ctx, ` WHERE sandbox_id = ? ORDER BY started_at DESC, id DESC LIMIT ?`, sandboxID, n)
	slices.Reverse(list)
	return list, err
}
