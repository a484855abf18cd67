package store

import (
	"context"
	"database/sql"
	"slices"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// ClaimGroups puts a principal into the groups that its issuer claims for it, and takes
// it out of those that the issuer claimed before. Groups into which an administrator put
// it stay. It returns what it changed. The error is of kind Exhausted beyond the bounds
// of groups; then nothing changed.
func (s *Store) ClaimGroups(ctx context.Context, p sandbox.Principal, groups []string) (added, removed []string, err error) {
	has, err := s.claimed(ctx, p)
	if err != nil {
		return nil, nil, sandbox.Wrap(err, "read groups", "")
	}
	for _, g := range has {
		if !slices.Contains(groups, g) {
			removed = append(removed, g)
		}
	}
	for _, g := range groups {
		if !slices.Contains(has, g) {
			added = append(added, g)
		}
	}
	if len(added)+len(removed) == 0 {
		return nil, nil, nil
	}
	err = s.tx(ctx, func(tx *sql.Tx) error {
		for _, g := range removed {
			if _, err := tx.ExecContext(ctx, `DELETE FROM group_members WHERE group_name = ? AND principal = ? AND claimed`, g, p); err != nil {
				return err
			}
		}
		for _, g := range added {
			r, err := tx.ExecContext(ctx, `INSERT INTO group_members (group_name, principal, claimed) VALUES (?, ?, 1) ON CONFLICT DO NOTHING`, g, p)
			if err != nil {
				return err
			}
			if n, err := r.RowsAffected(); err != nil {
				return err
			} else if n == 0 {
				continue // an administrator put it there
			}
			if err := checkGroup(ctx, tx, g, p); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil, sandbox.Wrap(err, "store groups", "")
	}
	return added, removed, nil
}

// claimed returns the groups of a principal by claims.
func (s *Store) claimed(ctx context.Context, p sandbox.Principal) ([]string, error) {
	var list []string
	err := collect(ctx, s.read, `SELECT group_name FROM group_members WHERE principal = ? AND claimed ORDER BY group_name`, []any{p}, func(scan scanFunc) error {
		var g string
		err := scan(&g)
		list = append(list, g)
		return err
	})
	return list, err
}

// checkGroup checks the bounds of groups after p became a member of a group.
func checkGroup(ctx context.Context, tx *sql.Tx, group string, p sandbox.Principal) error {
	var in, has int
	err := tx.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM group_members WHERE principal = ?),
		(SELECT count(*) FROM group_members WHERE group_name = ?)`, p, group).Scan(&in, &has)
	switch {
	case err != nil:
		return err
	case in > MaxGroupsOf:
		return sandbox.Errorf(sandbox.Exhausted, "%s would be in more than %d groups", p, MaxGroupsOf)
	case has > MaxGroupMembers:
		return sandbox.Errorf(sandbox.Exhausted, "group %s would have more than %d members", group, MaxGroupMembers)
	}
	return nil
}
