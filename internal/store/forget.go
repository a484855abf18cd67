package store

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Held counts the rows about a principal in each table that has some.
type Held map[string]int64

// ofPrincipal returns the tables with a column principal. A table of a later version is
// among them without a change here.
func (s *Store) ofPrincipal(ctx context.Context, db *sql.DB) ([]string, error) {
	var tables []string
	err := collect(ctx, db, `SELECT m.name FROM sqlite_master m JOIN pragma_table_info(m.name) c ON c.name = 'principal'
		WHERE m.type = 'table' ORDER BY m.name`, nil, func(scan scanFunc) error {
		var name string
		err := scan(&name)
		tables = append(tables, name)
		return err
	})
	return tables, err
}

// quote quotes the name of a table.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// Held counts what the store has about a principal, with the limits of its account.
func (s *Store) Held(ctx context.Context, p sandbox.Principal) (Held, error) {
	tables, err := s.ofPrincipal(ctx, s.read)
	if err != nil {
		return nil, sandbox.Wrap(err, "count records", "")
	}
	held := Held{}
	count := func(table, query string, args ...any) error {
		var n int64
		err := s.read.QueryRowContext(ctx, query, args...).Scan(&n)
		if n > 0 {
			held[table] = n
		}
		return err
	}
	for _, t := range tables {
		if err := count(t, `SELECT count(*) FROM `+quote(t)+` WHERE principal = ?`, p); err != nil {
			return nil, sandbox.Wrap(err, "count records", "")
		}
	}
	err = count("usage_limits", `SELECT count(*) FROM usage_limits WHERE kind = ? AND account = ?`, kindPrincipal, p)
	return held, sandbox.Wrap(err, "count records", "")
}

// Erase removes all rows about a principal in one transaction, and returns their
// numbers. The error is of kind Conflict while it has a live sandbox or a workspace:
// their files must be removed first. Rows that belong to these rows, such as the
// connections of sandboxes and the grants of tokens, go with them.
func (s *Store) Erase(ctx context.Context, p sandbox.Principal) (Held, error) {
	tables, err := s.ofPrincipal(ctx, s.read)
	if err != nil {
		return nil, sandbox.Wrap(err, "erase principal", string(p))
	}
	held := Held{}
	// Overwrite what is deleted, and drop the log of writes, which has it too.
	if _, err := s.write.ExecContext(ctx, `PRAGMA secure_delete = ON`); err != nil {
		return nil, sandbox.Wrap(err, "erase principal", string(p))
	}
	err = s.tx(ctx, func(tx *sql.Tx) error {
		var left int64
		err := tx.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM sandboxes WHERE principal = ?1 AND ended_at = 0)
			+ (SELECT count(*) FROM workspaces WHERE principal = ?1)`, p).Scan(&left)
		if err != nil {
			return err
		}
		if left > 0 {
			return sandbox.Errorf(sandbox.Conflict, "%d sandboxes or workspaces of the principal are left", left)
		}
		erase := func(table, query string, args ...any) error {
			r, err := tx.ExecContext(ctx, query, args...)
			if err != nil {
				return fmt.Errorf("%s: %w", table, err)
			}
			n, err := r.RowsAffected()
			if n > 0 {
				held[table] = n
			}
			return err
		}
		for _, t := range tables {
			if err := erase(t, `DELETE FROM `+quote(t)+` WHERE principal = ?`, p); err != nil {
				return err
			}
		}
		return erase("usage_limits", `DELETE FROM usage_limits WHERE kind = ? AND account = ?`, kindPrincipal, p)
	})
	if err == nil {
		// Other processes may read the log; then a later checkpoint drops it.
		_, err = s.write.ExecContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`)
	}
	return held, sandbox.Wrap(err, "erase principal", string(p))
}
