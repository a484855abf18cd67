package store

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A HistoryFilter selects runs. A zero field selects all.
type HistoryFilter struct {
	Principals []sandbox.Principal // any of them
	SandboxID  string
	Verdict    sandbox.VerdictCode
	// Label is the value of the label by which usage is counted.
	Label string
	// Runs started at From or later, and before To.
	From, To time.Time
	Limit    int
}

// historySQL reads runs with the first characters of their programs. A list of all
// runs with whole programs would need too much memory.
const historySQL = `SELECT ` + runColumns + `, substr(program, 1, 1000) FROM runs`

// History returns the records of the last runs that pass the filter, of all
// principals, newest first. Their Program has at most 1,000 characters.
func (s *Store) History(ctx context.Context, f HistoryFilter) ([]Run, error) {
	var where []string
	var args []any
	if len(f.Principals) > 0 {
		where = append(where, "principal IN (?"+strings.Repeat(", ?", len(f.Principals)-1)+")")
		for _, p := range f.Principals {
			args = append(args, p)
		}
	}
	if f.SandboxID != "" {
		where, args = append(where, "sandbox_id = ?"), append(args, f.SandboxID)
	}
	if f.Verdict != "" {
		where, args = append(where, "verdict = ? AND ended_at != 0"), append(args, f.Verdict)
	}
	if f.Label != "" {
		where, args = append(where, "sandbox_id IN (SELECT sandbox_id FROM meters WHERE label = ? AND label != '')"), append(args, f.Label)
	}
	if !f.From.IsZero() {
		where, args = append(where, "started_at >= ?"), append(args, micros(f.From))
	}
	if !f.To.IsZero() {
		where, args = append(where, "started_at < ?"), append(args, micros(f.To))
	}
	query := historySQL
	if len(where) > 0 {
		query += " WHERE " + strings.Join(where, " AND ")
	}
	query += " ORDER BY started_at DESC, id DESC"
	if f.Limit > 0 {
		query, args = query+" LIMIT ?", append(args, f.Limit)
	}
	return s.list(ctx, query, args)
}

// lastRunsSQL reads the last runs of a principal. The index of its sandboxes leads to
// them, so the time depends on the runs of that principal alone.
const lastRunsSQL = historySQL + ` WHERE id IN (
	SELECT r.id FROM sandboxes s CROSS JOIN runs r ON r.sandbox_id = s.id
	WHERE s.principal = ?1 AND r.principal = ?1 ORDER BY r.started_at DESC, r.id DESC LIMIT ?2)
	ORDER BY started_at DESC, id DESC`

// LastRuns returns the records of the last n runs of a principal, newest first. Their
// Program has at most 1,000 characters.
func (s *Store) LastRuns(ctx context.Context, p sandbox.Principal, n int) ([]Run, error) {
	return s.list(ctx, lastRunsSQL, []any{p, n})
}

// RecentRuns returns the records of the last n runs of a sandbox, oldest first.
func (s *Store) RecentRuns(ctx context.Context, sandboxID string, n int) ([]Run, error) {
	list, err := s.runs(ctx, ` WHERE sandbox_id = ? ORDER BY started_at DESC, id DESC LIMIT ?`, sandboxID, n)
	slices.Reverse(list)
	return list, err
}
