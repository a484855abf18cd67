package store

import (
	"context"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// SetHibernation records the saved state of a sandbox.
func (s *Store) SetHibernation(ctx context.Context, id string, h sandbox.Hibernation) error {
	_, err := s.exec(ctx, `UPDATE sandboxes SET saved_at = ?, saved_bytes = ?, saved_build = ?, save_error = ?, save_failed_at = ? WHERE id = ?`,
		micros(h.Saved), h.Bytes, h.Build, h.Error, micros(h.Failed), id)
	return sandbox.Wrap(err, "store sandbox", id)
}

// PackedState records the size of the state of a sandbox that was saved at that time. It
// has no effect if the sandbox was woken since.
func (s *Store) PackedState(ctx context.Context, id string, saved time.Time, bytes int64) error {
	_, err := s.exec(ctx, `UPDATE sandboxes SET saved_bytes = ? WHERE id = ? AND saved_at = ?`, bytes, id, micros(saved))
	return sandbox.Wrap(err, "store sandbox", id)
}

// SavedStates are the saved states of live sandboxes that one build can wake.
type SavedStates struct {
	Build string
	Count int
	Bytes int64
	// Oldest is when the first of them was saved.
	Oldest time.Time
}

// SavedStates returns the saved states of the state directory, by build.
func (s *Store) SavedStates(ctx context.Context) ([]SavedStates, error) {
	var list []SavedStates
	err := collect(ctx, s.read, `SELECT saved_build, count(*), sum(saved_bytes), min(saved_at) FROM sandboxes
		WHERE ended_at = 0 AND saved_at != 0 GROUP BY saved_build ORDER BY saved_build`, nil, func(scan scanFunc) error {
		var st SavedStates
		var oldest int64
		err := scan(&st.Build, &st.Count, &st.Bytes, &oldest)
		st.Oldest = fromMicros(oldest)
		list = append(list, st)
		return err
	})
	return list, sandbox.Wrap(err, "list saved states", "")
}
