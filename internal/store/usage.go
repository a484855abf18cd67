package store

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
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
	var r usage.Row
	var start int64
	var dest []any
	for _, c := range groups(q) {
		dest = append(dest, map[usage.Column]any{
			usage.ByHour: &start, usage.ByDay: &start, usage.ByPrincipal: &r.Principal, usage.ByWorkspace: &r.Workspace, usage.ByLabel: &r.Label,
		}[c])
	}
	for _, v := range r.Values() {
		dest = append(dest, v)
	}
	text, args := usageSQL(q)
	spans := map[int64][]usage.Row{}
	err := collect(ctx, s.read, text, args, func(scan scanFunc) error {
		err := scan(dest...)
		r.Start = fromMicros(start)
		spans[start] = append(spans[start], r)
		return err
	})
	if err != nil {
		return nil, sandbox.Wrap(err, "read usage", "")
	}
	var lists [][]usage.Row
	for _, start := range slices.Sorted(maps.Keys(spans)) {
		slices.SortFunc(spans[start], func(a, b usage.Row) int {
			return cmp.Or(strings.Compare(string(a.Principal), string(b.Principal)), strings.Compare(a.Workspace, b.Workspace), strings.Compare(a.Label, b.Label))
		})
		lists = append(lists, spans[start])
	}
	return slices.Concat(lists...), nil
}

// groups returns the columns that a query groups by, in the order of its rows.
func groups(q usage.Query) []usage.Column {
	return slices.DeleteFunc([]usage.Column{usage.ByHour, usage.ByDay, usage.ByPrincipal, usage.ByWorkspace, usage.ByLabel},
		func(c usage.Column) bool { return !q.Has(c) })
}

// usageSQL returns the statement of a query, and its arguments. The columns are those of
// groups and then the amounts. Only with a limit, the rows have an order.
//
// The tables are in the order of principals, so the rows of one time are scattered. To
// read them in the order of times takes a search for each row, which ends early with a
// limit. Without a limit, the statement goes from principal to principal and reads the
// rows of each, which are adjacent. It skips those of other times.
func usageSQL(q usage.Query) (text string, args []any) {
	// The table of days has no workspaces and labels.
	table, start := "usage_days", "day"
	if q.Has(usage.ByHour) || q.Has(usage.ByWorkspace) || q.Has(usage.ByLabel) {
		table, start = "usage_hours", "hour"
	}
	var columns []string
	for _, c := range groups(q) {
		if c == usage.ByDay && start == "hour" {
			columns = append(columns, "u.hour - u.hour % 86400000000")
		} else {
			columns = append(columns, "u."+string(c))
		}
	}
	by, amount := " GROUP BY "+strings.Join(columns, ", "), "sum(u.%s)"
	switch {
	case len(columns) == 0:
		by = " HAVING count(*) > 0" // no row instead of sums of nothing
	case table == "usage_days" && len(columns) == 2:
		by, amount = "", "u.%s" // a row of the table is one principal's day
	}
	if q.Limit > 0 && len(columns) > 0 {
		by += " ORDER BY " + strings.Join(columns, ", ")
	}
	for _, name := range usage.Names() {
		columns = append(columns, fmt.Sprintf(amount, name))
	}
	from := table + " AS u"
	where, args := ofPrincipals(q.Principals)
	if len(q.Principals) == 0 && q.Limit == 0 {
		text = `WITH RECURSIVE each (principal) AS (SELECT min(principal) FROM ` + table + ` UNION ALL
			SELECT (SELECT min(principal) FROM ` + table + ` WHERE principal > each.principal) FROM each WHERE each.principal IS NOT NULL) `
		from, where = "each CROSS JOIN "+from, "u.principal = each.principal"
	}
	if !q.From.IsZero() {
		where, args = where+" AND u."+start+" >= ?", append(args, micros(q.From))
	}
	if !q.To.IsZero() {
		where, args = where+" AND u."+start+" < ?", append(args, micros(q.To))
	}
	text += `SELECT ` + strings.Join(columns, ", ") + ` FROM ` + from + ` WHERE ` + where + by
	if q.Limit > 0 {
		text, args = text+" LIMIT ?", append(args, q.Limit)
	}
	return text, args
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
	text := `SELECT sandbox_id, started_at, principal, workspace, label, counted_at / 1000 - started_at / 1000, memory_kib,
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
