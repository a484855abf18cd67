package store

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/usage"
)

// Bounds of groups, because a check reads what all members used.
const (
	MaxGroupMembers = 1000
	MaxGroupsOf     = 16 // of one principal
)

// AnyPrincipal is the account of limits for each principal that has no such limit
// itself, except [sandbox.Local].
const AnyPrincipal = "*"

// The kinds of accounts in usage_limits.
const (
	kindPrincipal = "principal"
	kindGroup     = "group"
)

// AccountLimit is [usage.AccountLimit], and Group is [usage.Group].
type (
	AccountLimit = usage.AccountLimit
	Group        = usage.Group
)

// accountOf returns the kind and the name of a limit's account.
func accountOf(a AccountLimit) (kind, account string) {
	if a.Group != "" {
		return kindGroup, a.Group
	}
	return kindPrincipal, string(a.Principal)
}

// SetLimits records limits. Processes of the state directory obey them at once.
func (s *Store) SetLimits(ctx context.Context, list []AccountLimit) error {
	err := s.tx(ctx, func(tx *sql.Tx) error {
		for _, l := range list {
			kind, account := accountOf(l)
			_, err := tx.ExecContext(ctx, `INSERT INTO usage_limits VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value`,
				kind, account, l.Limit, l.Value)
			if err != nil {
				return err
			}
		}
		return nil
	})
	return sandbox.Wrap(err, "store limits", "")
}

// RemoveLimits removes limits of an account; none removes all. It returns how many it
// removed.
func (s *Store) RemoveLimits(ctx context.Context, of AccountLimit, limits []usage.Limit) (removed int64, err error) {
	kind, account := accountOf(of)
	err = s.tx(ctx, func(tx *sql.Tx) error {
		remove := func(where string, args ...any) error {
			r, err := tx.ExecContext(ctx, `DELETE FROM usage_limits WHERE kind = ? AND account = ?`+where, append([]any{kind, account}, args...)...)
			if err != nil {
				return err
			}
			n, err := r.RowsAffected()
			removed += n
			return err
		}
		if len(limits) == 0 {
			return remove("")
		}
		for _, l := range limits {
			if err := remove(" AND name = ?", l); err != nil {
				return err
			}
		}
		return nil
	})
	return removed, sandbox.Wrap(err, "remove limits", "")
}

// Limits returns all limits.
func (s *Store) Limits(ctx context.Context) ([]AccountLimit, error) {
	var list []AccountLimit
	err := collect(ctx, s.read, `SELECT kind, account, name, value FROM usage_limits ORDER BY kind DESC, account, name`, nil, func(scan scanFunc) error {
		var l AccountLimit
		var kind, account string
		err := scan(&kind, &account, &l.Limit, &l.Value)
		if kind == kindGroup {
			l.Group = account
		} else {
			l.Principal = sandbox.Principal(account)
		}
		list = append(list, l)
		return err
	})
	return list, sandbox.Wrap(err, "list limits", "")
}

// AddMembers adds principals to a group, which they make. The error is of kind Exhausted
// beyond the bounds of groups.
func (s *Store) AddMembers(ctx context.Context, group string, members []sandbox.Principal) error {
	err := s.tx(ctx, func(tx *sql.Tx) error {
		for _, p := range members {
			_, err := tx.ExecContext(ctx, `INSERT INTO group_members (group_name, principal) VALUES (?, ?)
				ON CONFLICT DO UPDATE SET claimed = 0`, group, p)
			if err != nil {
				return err
			}
			if err := checkGroup(ctx, tx, group, p); err != nil {
				return err
			}
		}
		return nil
	})
	return sandbox.Wrap(err, "store group", group)
}

// RemoveMembers removes principals from a group, and returns how many. No principals
// remove all members, and the limits of the group.
func (s *Store) RemoveMembers(ctx context.Context, group string, members []sandbox.Principal) (removed int64, err error) {
	err = s.tx(ctx, func(tx *sql.Tx) error {
		where, args := ofPrincipals(members)
		r, err := tx.ExecContext(ctx, `DELETE FROM group_members WHERE group_name = ? AND `+where, append([]any{group}, args...)...)
		if err != nil {
			return err
		}
		if removed, err = r.RowsAffected(); err != nil || len(members) > 0 {
			return err
		}
		_, err = tx.ExecContext(ctx, `DELETE FROM usage_limits WHERE kind = ? AND account = ?`, kindGroup, group)
		return err
	})
	return removed, sandbox.Wrap(err, "remove from group", group)
}

// Groups returns all groups.
func (s *Store) Groups(ctx context.Context) ([]Group, error) {
	var list []Group
	err := collect(ctx, s.read, `SELECT group_name, principal FROM group_members ORDER BY group_name, principal`, nil, func(scan scanFunc) error {
		var name string
		var p sandbox.Principal
		if err := scan(&name, &p); err != nil {
			return err
		}
		if n := len(list); n == 0 || list[n-1].Name != name {
			list = append(list, Group{Name: name})
		}
		last := &list[len(list)-1]
		last.Members = append(last.Members, p)
		return nil
	})
	return list, sandbox.Wrap(err, "list groups", "")
}

// A querier is a database or a transaction.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// limitsOfSQL selects the limits of a principal, of any principal, and of its groups. It
// is written for SQLite's planner: with OR in place of IN, and with JOIN in place of CROSS
// JOIN, which keeps the order, it reads the limits of all principals and groups.
const limitsOfSQL = `SELECT kind, account, name, value FROM usage_limits
	WHERE kind = 'principal' AND account IN (?1, CASE ?1 WHEN 'local' THEN ?1 ELSE '*' END)
	UNION ALL SELECT l.kind, l.account, l.name, l.value FROM group_members m
	CROSS JOIN usage_limits l ON l.kind = 'group' AND l.account = m.group_name WHERE m.principal = ?1`

// Accounts returns the accounts of a principal that have limits: its own, and those of
// its groups.
func (s *Store) Accounts(ctx context.Context, p sandbox.Principal) ([]usage.Account, error) {
	list, err := s.accounts(ctx, s.read, s.getLimits, p)
	return list, sandbox.Wrap(err, "read limits", "")
}

// RequestRates returns the limits of requests in a second that bound a principal: its own
// first.
func (s *Store) RequestRates(ctx context.Context, p sandbox.Principal) ([]usage.Rate, error) {
	list, err := limitsOf(ctx, s.getLimits, p)
	if err != nil {
		return nil, sandbox.Wrap(err, "read limits", "")
	}
	var rates []usage.Rate
	for _, a := range list {
		if n, limited := a.Limits[usage.LimitRequests]; limited {
			rates = append(rates, usage.Rate{Group: a.Group, PerSecond: n})
		}
	}
	return rates, nil
}

// accounts implements Accounts. limits is the statement of limitsOfSQL for q.
func (s *Store) accounts(ctx context.Context, q querier, limits *sql.Stmt, p sandbox.Principal) ([]usage.Account, error) {
	list, err := limitsOf(ctx, limits, p)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if err := s.readUse(ctx, q, p, &list[i]); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// limitsOf returns the accounts without what they use: the principal's own first.
func limitsOf(ctx context.Context, limits *sql.Stmt, p sandbox.Principal) ([]usage.Account, error) {
	rows, err := limits.QueryContext(ctx, p)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	own, groups := map[usage.Limit]int64{}, map[string]map[usage.Limit]int64{}
	isOwn := map[usage.Limit]bool{} // not of any principal
	for rows.Next() {
		var kind, account string
		var limit usage.Limit
		var value int64
		if err := rows.Scan(&kind, &account, &limit, &value); err != nil {
			return nil, err
		}
		switch {
		case kind == kindGroup && groups[account] == nil:
			groups[account] = map[usage.Limit]int64{limit: value}
		case kind == kindGroup:
			groups[account][limit] = value
		case account != AnyPrincipal || !isOwn[limit]:
			own[limit], isOwn[limit] = value, account != AnyPrincipal
		}
	}
	var list []usage.Account
	if len(own) > 0 {
		list = append(list, usage.Account{Limits: own})
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		list = append(list, usage.Account{Group: name, Limits: groups[name]})
	}
	return list, rows.Err()
}

// readUse reads what the principal, or all members of the account's group, use.
func (s *Store) readUse(ctx context.Context, q querier, p sandbox.Principal, a *usage.Account) error {
	now := s.Now()
	hour, day := now.Truncate(usage.Hour), now.Truncate(usage.Day)
	month := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	of, whose := "= ?1", string(p)
	if a.Group != "" {
		of, whose = "IN (SELECT principal FROM group_members WHERE group_name = ?1)", a.Group
	}
	var starting int64
	// There are few live sandboxes, but a group can have many members.
	err := q.QueryRowContext(ctx, `SELECT count(*), coalesce(sum(state = 'starting'), 0) FROM sandboxes WHERE ended_at = 0 AND principal `+of, whose).
		Scan(&a.Live, &starting)
	if err != nil {
		return err
	}
	err = q.QueryRowContext(ctx, `SELECT coalesce(sum(sandboxes), 0) FROM usage_hours WHERE hour = ?2 AND principal `+of, whose, micros(hour)).
		Scan(&a.Hour.Sandboxes)
	if err != nil {
		return err
	}
	a.Hour.Sandboxes += starting
	// The limits of a sandbox are JSON. They are read only where a limit needs them.
	for _, sum := range []struct {
		of    usage.Limit
		query string
		to    *int64
	}{
		{usage.LimitMemory, `sum(json_extract(limits, '$.memory_bytes')) FROM sandboxes WHERE ended_at = 0`, &a.LiveMemory},
		{usage.LimitCPUs, `sum(CAST(round(json_extract(limits, '$.cpus') * 1000) AS INTEGER)) FROM sandboxes WHERE ended_at = 0`, &a.LiveCPUs},
		{usage.LimitWorkspaceBytes, `sum(bytes) FROM workspaces WHERE true`, &a.WorkspaceBytes},
		{usage.LimitSnapshotBytes, `sum(bytes + reserved) FROM snapshots WHERE true`, &a.SnapshotBytes},
		{usage.LimitSavedBytes, `sum(saved_bytes) FROM sandboxes WHERE ended_at = 0 AND saved_at != 0`, &a.SavedBytes},
	} {
		if _, limited := a.Limits[sum.of]; !limited {
			continue
		}
		var n sql.NullInt64
		if err := q.QueryRowContext(ctx, `SELECT `+sum.query+` AND principal `+of, whose).Scan(&n); err != nil {
			return err
		}
		*sum.to = n.Int64
	}
	const sums = `coalesce(sum(cpu_ms), 0), coalesce(sum(sandbox_ms), 0), coalesce(sum(sent_bytes), 0)`
	read := func(since time.Time, to *usage.Amounts) error {
		return q.QueryRowContext(ctx, `SELECT `+sums+` FROM usage_days WHERE day >= ?2 AND principal `+of, whose, micros(since)).
			Scan(&to.CPUMillis, &to.SandboxMillis, &to.SentBytes)
	}
	return errors.Join(read(day, &a.Day), read(month, &a.Month))
}
