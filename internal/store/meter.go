package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/usage"
)

// A Reading is a measurement of a sandbox. The counters are totals, so a reading that
// is recorded twice, or after a later one, counts nothing twice.
type Reading struct {
	SandboxID string
	// Until is when the sandbox still existed. Zero stands for its last use.
	Until time.Time
	usage.Counters
}

const (
	// maxHourRows bounds the workspaces and labels of one principal in one hour. What
	// is used beyond it counts for the workspace "" and the label [usage.Other].
	maxHourRows = 1000
	// maxRunCPUs bounds the CPU time that a guest reports for a run: so many
	// processors, all of the time.
	maxRunCPUs = 4096
	// cpuSlack is added to the time of a run for that bound, because both are rounded.
	cpuSlack = time.Second
)

const (
	selectMeterSQL = `SELECT principal, workspace, label, memory_kib, counted_at, box_counts, box_cpu_ms, run_cpu_ms, sent, received
		FROM meters WHERE sandbox_id = ?`

	// A server of before this table may have made the sandbox without a meter.
	insertMeterSQL = `INSERT INTO meters (sandbox_id, principal, workspace, label, box_counts, memory_kib, started_at, counted_at)
		SELECT id, principal, workspace, ?, ?, coalesce(json_extract(limits, '$.memory_bytes'), 0) / 1024, used_at, used_at
		FROM sandboxes WHERE id = ? AND state != 'starting' AND ended_at = 0 ON CONFLICT DO NOTHING`

	addRunSQL = `UPDATE meters SET run_cpu_ms = run_cpu_ms + ?, runs = runs + 1, run_ms = run_ms + ? WHERE sandbox_id = ?
		RETURNING principal, workspace, label, box_counts, box_cpu_ms, run_cpu_ms`

	updateMeterSQL = `UPDATE meters SET counted_at = ?, box_cpu_ms = ?, run_cpu_ms = ?, sent = ?, received = ?
		WHERE sandbox_id = ?`
)

// The statements that add amounts to an hour and a day.
var (
	addHourSQL   = `UPDATE usage_hours SET ` + addition(func(string) string { return "?" }) + ` WHERE principal = ? AND hour = ? AND workspace = ? AND label = ?`
	putHourSQL   = `INSERT INTO usage_hours (` + amountColumns + `, principal, hour, workspace, label) VALUES (` + amountHoles + `, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET ` + addition(excluded)
	putDaySQL    = `INSERT INTO usage_days (` + amountColumns + `, principal, day) VALUES (` + amountHoles + `, ?, ?) ON CONFLICT DO UPDATE SET ` + addition(excluded)
	countHourSQL = `SELECT count(*) FROM usage_hours WHERE principal = ? AND hour = ?`
)

// amountColumns are the columns of amounts, and amountHoles as many parameters.
var (
	amountColumns = strings.Join(usage.Names(), ", ")
	amountHoles   = strings.TrimSuffix(strings.Repeat("?, ", len(usage.Names())), ", ")
)

func excluded(name string) string { return "excluded." + name }

// addition returns assignments that add a value to each amount. A sum that would
// overflow stays at the largest number.
func addition(value func(name string) string) string {
	var list []string
	for _, name := range usage.Names() {
		list = append(list, fmt.Sprintf("%s = min(%s + %s, 9223372036854775807)", name, name, value(name)))
	}
	return strings.Join(list, ", ")
}

// A meter is what was counted of a sandbox.
type meter struct {
	id               string
	principal        sandbox.Principal
	workspace, label string
	memoryKiB        int64
	counted          time.Time // until when its existence is counted
	counters         usage.Counters
}

// A metering records what sandboxes use, in one transaction.
type metering struct {
	s     *Store
	tx    *sql.Tx
	total usage.Amounts
}

// meter runs f in a transaction. After its commit, Options.Metered gets the amounts
// that f counted.
func (s *Store) meter(ctx context.Context, f func(*metering) error) error {
	m := metering{s: s}
	err := s.tx(ctx, func(tx *sql.Tx) error {
		m.tx, m.total = tx, usage.Amounts{}
		err := f(&m)
		m.s.step()
		return err
	})
	s.step()
	if err == nil && s.metered != nil && !m.total.IsZero() {
		s.metered(m.total)
	}
	return err
}

// step calls Store.beforeWrite.
func (s *Store) step() {
	if s.beforeWrite != nil {
		s.beforeWrite()
	}
}

// exec runs one of the prepared statements.
func (m *metering) exec(ctx context.Context, stmt *sql.Stmt, args ...any) (int64, error) {
	m.s.step()
	r, err := m.tx.StmtContext(ctx, stmt).ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// find returns the meter of a sandbox, or nil if the sandbox has none.
func (m *metering) find(ctx context.Context, id string) (*meter, error) {
	t := meter{id: id}
	var counted int64
	c := &t.counters
	read := func() error {
		return m.tx.StmtContext(ctx, m.s.getMeter).QueryRowContext(ctx, id).Scan(&t.principal, &t.workspace, &t.label, &t.memoryKiB, &counted,
			&c.BoxCounts, &c.BoxCPUMillis, &c.RunCPUMillis, &c.SentBytes, &c.ReceivedBytes)
	}
	err := read()
	if errors.Is(err, sql.ErrNoRows) {
		var n int64
		if n, err = m.exec(ctx, m.s.addMeter, "", false, id); err != nil || n == 0 {
			return nil, err
		}
		err = read()
	}
	t.counted = fromMicros(counted)
	return &t, err
}

// save writes the meter back.
func (m *metering) save(ctx context.Context, t *meter) error {
	c := t.counters
	_, err := m.exec(ctx, m.s.putMeter, micros(t.counted), c.BoxCPUMillis, c.RunCPUMillis, c.SentBytes, c.ReceivedBytes, t.id)
	return err
}

// count adds the parts of an interval to the hours and days of a principal.
func (m *metering) count(ctx context.Context, p sandbox.Principal, workspace, label string, parts []usage.Part) error {
	for i := 0; i < len(parts); {
		day, sum := parts[i].Hour.Truncate(usage.Day), usage.Amounts{}
		for ; i < len(parts) && parts[i].Hour.Truncate(usage.Day).Equal(day); i++ {
			if parts[i].IsZero() {
				continue
			}
			sum = sum.Plus(parts[i].Amounts)
			if err := m.countHour(ctx, p, workspace, label, parts[i]); err != nil {
				return err
			}
		}
		if sum.IsZero() {
			continue
		}
		if _, err := m.exec(ctx, m.s.putDay, append(values(sum), p, micros(day))...); err != nil {
			return err
		}
		m.total = m.total.Plus(sum)
	}
	return nil
}

func (m *metering) countHour(ctx context.Context, p sandbox.Principal, workspace, label string, part usage.Part) error {
	hour := micros(part.Hour)
	n, err := m.exec(ctx, m.s.addHour, append(values(part.Amounts), p, hour, workspace, label)...)
	if err != nil || n == 1 {
		return err
	}
	var rows int
	if err := m.tx.StmtContext(ctx, m.s.countHour).QueryRowContext(ctx, p, hour).Scan(&rows); err != nil {
		return err
	}
	if rows >= maxHourRows {
		workspace, label = "", usage.Other
	}
	_, err = m.exec(ctx, m.s.putHour, append(values(part.Amounts), p, hour, workspace, label)...)
	return err
}

func values(a usage.Amounts) []any {
	args := make([]any, 0, len(usage.Names())+4)
	for _, v := range a.Values() {
		args = append(args, *v)
	}
	return args
}

// begin begins to count a sandbox that has just started.
func (m *metering) begin(ctx context.Context, id, label string, boxCounts bool) error {
	if _, err := m.exec(ctx, m.s.addMeter, label, boxCounts, id); err != nil {
		return err
	}
	t, err := m.find(ctx, id)
	if err != nil || t == nil {
		return err
	}
	return m.count(ctx, t.principal, t.workspace, label, usage.Divide(t.counted, t.counted, usage.Amounts{Sandboxes: 1}))
}

// read counts a reading.
func (m *metering) read(ctx context.Context, r Reading) error {
	t, err := m.find(ctx, r.SandboxID)
	if err != nil || t == nil {
		return err
	}
	until := r.Until
	if until.IsZero() {
		var used int64
		if err := m.tx.QueryRowContext(ctx, `SELECT used_at FROM sandboxes WHERE id = ?`, r.SandboxID).Scan(&used); err != nil {
			return err
		}
		until = fromMicros(used)
	}
	if until = until.UTC().Truncate(time.Millisecond); until.Before(t.counted) {
		until = t.counted // another reading was faster, or the clock was set back
	}
	from := t.counted
	next, used := t.counters.Advance(r.Counters)
	t.counted, t.counters = until, next
	if err := m.save(ctx, t); err != nil {
		return err
	}
	parts := usage.Merge(usage.Exist(from, until, t.memoryKiB), usage.Divide(from, until, used))
	return m.count(ctx, t.principal, t.workspace, t.label, parts)
}

// ended counts a run that has just ended.
func (m *metering) ended(ctx context.Context, sandboxID string, from, to time.Time, cpuMillis int64) error {
	took := max(to.Sub(from), 0)
	cpuMillis = min(max(cpuMillis, 0), maxRunCPUs*(took+cpuSlack).Milliseconds())
	var p sandbox.Principal
	var workspace, label string
	var now usage.Counters
	add := func() error {
		m.s.step()
		return m.tx.StmtContext(ctx, m.s.addRun).QueryRowContext(ctx, cpuMillis, took.Milliseconds(), sandboxID).
			Scan(&p, &workspace, &label, &now.BoxCounts, &now.BoxCPUMillis, &now.RunCPUMillis)
	}
	err := add()
	if errors.Is(err, sql.ErrNoRows) {
		if t, err := m.find(ctx, sandboxID); err != nil || t == nil {
			return err
		}
		err = add()
	}
	if err != nil {
		return err
	}
	before := now
	before.RunCPUMillis -= cpuMillis
	_, used := before.Advance(now)
	used.Runs, used.RunMillis = 1, took.Milliseconds()
	return m.count(ctx, p, workspace, label, usage.Divide(from, to, used))
}

// readingsAtOnce bounds the readings of one transaction, for which other writers wait.
const readingsAtOnce = 100

// Meter counts what sandboxes used since they were read last.
func (s *Store) Meter(ctx context.Context, list []Reading) error {
	for len(list) > 0 {
		some := list[:min(readingsAtOnce, len(list))]
		list = list[len(some):]
		err := s.meter(ctx, func(m *metering) error {
			for _, r := range some {
				if err := m.read(ctx, r); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return sandbox.Wrap(err, "count usage", "")
		}
	}
	return nil
}

// MeterWorkspaces counts the sizes of the workspaces that were not counted since t.
func (s *Store) MeterWorkspaces(ctx context.Context, t time.Time) error {
	for {
		n := 0
		err := s.meter(ctx, func(m *metering) error {
			rows, err := m.tx.QueryContext(ctx, `SELECT id FROM workspaces WHERE counted_at < ? LIMIT ?`, micros(t), readingsAtOnce)
			if err != nil {
				return err
			}
			var ids []string
			for rows.Next() {
				var id string
				if err := rows.Scan(&id); err != nil {
					return errors.Join(err, rows.Close())
				}
				ids = append(ids, id)
			}
			n = len(ids)
			if err := rows.Err(); err != nil {
				return err
			}
			for _, id := range ids {
				if err := m.workspace(ctx, id, anySize); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil || n < readingsAtOnce {
			return sandbox.Wrap(err, "count usage", "")
		}
	}
}

// anySize makes workspace count in any case.
const anySize = -1

// workspace counts the size of a workspace until now, unless its size is and stays same.
// The caller changes the size, or removes the workspace, in the same transaction.
func (m *metering) workspace(ctx context.Context, id string, same int64) error {
	var (
		p              sandbox.Principal
		name           string
		bytes, counted int64
	)
	err := m.tx.QueryRowContext(ctx, `SELECT principal, name, bytes, counted_at FROM workspaces WHERE id = ?`, id).Scan(&p, &name, &bytes, &counted)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	from, to := fromMicros(counted), m.s.Now().Truncate(time.Millisecond)
	if !from.Before(to) || bytes == same {
		return nil
	}
	m.s.step()
	if _, err := m.tx.ExecContext(ctx, `UPDATE workspaces SET counted_at = ? WHERE id = ?`, micros(to), id); err != nil {
		return err
	}
	if counted == 0 {
		return nil // a server of before this column made it
	}
	return m.count(ctx, p, name, "", usage.Store(from, to, bytes/1024))
}

// ForgetUsage removes the sums of hours and days that began before these times.
func (s *Store) ForgetUsage(ctx context.Context, hours, days time.Time) error {
	_, err := s.exec(ctx, `DELETE FROM usage_hours WHERE hour < ?`, micros(hours))
	if err == nil {
		_, err = s.exec(ctx, `DELETE FROM usage_days WHERE day < ?`, micros(days))
	}
	return sandbox.Wrap(err, "remove old usage", "")
}
