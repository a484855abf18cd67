package store

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/usage"
)

// Usage returns the sums of amounts, in the order of their times and columns. With
// [usage.BySandbox], it returns what each sandbox on record used until it was read last,
// the newest first, and ignores the times.
func (s *Store) Usage(ctx context.Context, q usage.Query) ([]usage.Row, error) {
	if q.Has(usage.BySandbox) {
		return s.sandboxUsage(ctx, q)
	}
	// The table of days has no workspaces and labels.
	table, start := "usage_days", "day"
	if q.Has(usage.ByHour) || q.Has(usage.ByWorkspace) || q.Has(usage.ByLabel) {
		table, start = "usage_hours", "hour"
	}
	var columns []string
	switch {
	case q.Has(usage.ByDay) && start == "hour":
		columns = append(columns, "hour - hour % 86400000000")
	case q.Has(usage.ByDay) || q.Has(usage.ByHour):
		columns = append(columns, start)
	default:
		columns = append(columns, "0")
	}
	for _, c := range []usage.Column{usage.ByPrincipal, usage.ByWorkspace, usage.ByLabel} {
		if q.Has(c) {
			columns = append(columns, string(c))
		} else {
			columns = append(columns, "''")
		}
	}
	for _, name := range usage.Names() {
		columns = append(columns, "sum("+name+")")
	}
	where, args := ofPrincipals(q.Principals)
	if !q.From.IsZero() {
		where, args = where+" AND "+start+" >= ?", append(args, micros(q.From))
	}
	if !q.To.IsZero() {
		where, args = where+" AND "+start+" < ?", append(args, micros(q.To))
	}
	// A constant column would make SQLite sort all rows, instead of reading them in the
	// order of an index.
	var groups []string
	for i, c := range columns[:4] {
		if c != "0" && c != "''" {
			groups = append(groups, strconv.Itoa(i+1))
		}
	}
	by := "1"
	if len(groups) > 0 {
		by = strings.Join(groups, ", ")
	}
	text := `SELECT ` + strings.Join(columns, ", ") + ` FROM ` + table + ` WHERE ` + where + ` GROUP BY ` + by + ` ORDER BY ` + by
	if q.Limit > 0 {
		text, args = text+" LIMIT ?", append(args, q.Limit)
	}
	var list []usage.Row
	err := collect(ctx, s.read, text, args, func(scan scanFunc) error {
		var r usage.Row
		var start int64
		dest := []any{&start, &r.Principal, &r.Workspace, &r.Label}
		for _, v := range r.Values() {
			dest = append(dest, v)
		}
		err := scan(dest...)
		r.Start = fromMicros(start)
		list = append(list, r)
		return err
	})
	return list, sandbox.Wrap(err, "read usage", "")
}

// ofPrincipals returns a condition, and its arguments. No principals select all.
func ofPrincipals(list []sandbox.Principal) (where string, args []any) {
	if len(list) == 0 {
		return "1", nil
	}
	for _, p := range list {
		args = append(args, p)
	}
	return "principal IN (?" + strings.Repeat(", ?", len(list)-1) + ")", args
}

func (s *Store) sandboxUsage(ctx context.Context, q usage.Query) ([]usage.Row, error) {
	where, args := ofPrincipals(q.Principals)
	text := `SELECT sandbox_id, started_at, principal, workspace, label, (counted_at - started_at) / 1000, memory_kib,
		iif(box_counts, box_cpu_ms, run_cpu_ms), runs, run_ms, sent, received FROM meters WHERE ` + where + ` ORDER BY started_at DESC, sandbox_id`
	if q.Limit > 0 {
		text, args = text+" LIMIT ?", append(args, q.Limit)
	}
	var list []usage.Row
	err := collect(ctx, s.read, text, args, func(scan scanFunc) error {
		var r usage.Row
		var started, kib int64
		err := scan(&r.SandboxID, &started, &r.Principal, &r.Workspace, &r.Label, &r.SandboxMillis, &kib,
			&r.CPUMillis, &r.Runs, &r.RunMillis, &r.SentBytes, &r.ReceivedBytes)
		r.Start, r.Sandboxes = fromMicros(started), 1
		for _, p := range usage.Exist(r.Start, r.Start.Add(time.Duration(r.SandboxMillis)*time.Millisecond), kib) {
			r.MemoryKiBSeconds += p.MemoryKiBSeconds
		}
		list = append(list, r)
		return err
	})
	return list, sandbox.Wrap(err, "read usage", "")
}
