package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Workspace is the record of one workspace. Its quota is not stored.
type Workspace struct {
	sandbox.Workspace
	// ID names the directory, and is known only to its principal. Handle is the
	// public identifier.
	ID, Handle string
	Principal  sandbox.Principal
}

const selectWorkspaceSQL = `SELECT id, handle, principal, name, created_at, used_at, bytes, files,
	NOT (` + unusedSQL + `)
	FROM workspaces w`

func scanWorkspace(scan scanFunc) (Workspace, error) {
	var (
		w             Workspace
		created, used int64
	)
	err := scan(&w.ID, &w.Handle, &w.Principal, &w.Name, &created, &used, &w.Usage.Bytes, &w.Usage.Files, &w.InUse)
	w.Created, w.Used = fromMicros(created), fromMicros(used)
	return w, err
}

// UseWorkspace records a use of a workspace, and adds its record if there is
// none. The error is of kind Exhausted if a new record would give the principal
// more than most. It is of kind Conflict if the principal has another workspace
// of that name. make is called to create the directory while no process can
// remove the workspace.
func (s *Store) UseWorkspace(ctx context.Context, w Workspace, most int, make func() error) error {
	err := s.tx(ctx, func(tx *sql.Tx) error {
		r, err := tx.ExecContext(ctx, `UPDATE workspaces SET used_at = max(used_at, ?) WHERE id = ?`, micros(w.Used), w.ID)
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); err != nil || n == 1 {
			return errors.Join(err, make())
		}
		var count int
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM workspaces WHERE principal = ?`, w.Principal).Scan(&count); err != nil {
			return err
		}
		if count >= most {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "workspace: you have %d workspaces, which is the maximum", count),
				"delete a workspace that you do not need")
		}
		r, err = tx.ExecContext(ctx, `INSERT INTO workspaces (id, handle, principal, name, created_at, used_at, counted_at) VALUES (?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (principal, name) DO NOTHING`, w.ID, w.Handle, w.Principal, w.Name, micros(w.Used), micros(w.Used), micros(w.Used))
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, sandbox.Errorf(sandbox.Conflict, "a workspace with this name exists"))
		}
		return make()
	})
	return sandbox.Wrap(err, "use workspace", w.Name)
}

// Workspace returns the record of a workspace by its ID or its handle, or an
// error of kind NotFound.
func (s *Store) Workspace(ctx context.Context, idOrHandle string) (Workspace, error) {
	w, err := scanWorkspace(s.read.QueryRowContext(ctx, selectWorkspaceSQL+` WHERE id = ? OR handle = ?`, idOrHandle, idOrHandle).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return Workspace{}, sandbox.Errorf(sandbox.NotFound, "there is no such workspace")
	}
	return w, sandbox.Wrap(err, "read workspace", "")
}

// NamedWorkspace returns the record of a principal's workspace by its name, or
// an error of kind NotFound.
func (s *Store) NamedWorkspace(ctx context.Context, p sandbox.Principal, name string) (Workspace, error) {
	w, err := scanWorkspace(s.read.QueryRowContext(ctx, selectWorkspaceSQL+` WHERE principal = ? AND name = ?`, p, name).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return Workspace{}, sandbox.Errorf(sandbox.NotFound, "there is no such workspace")
	}
	return w, sandbox.Wrap(err, "read workspace", "")
}

// Workspaces returns the records of a principal's workspaces by name, or of all
// workspaces if p is "".
func (s *Store) Workspaces(ctx context.Context, p sandbox.Principal) ([]Workspace, error) {
	return s.workspaces(ctx, ` WHERE principal = ? OR ? = '' ORDER BY principal, name`, p, p)
}

// WorkspaceTotals returns the number of workspaces of all principals, and their
// total usage when each was last measured.
func (s *Store) WorkspaceTotals(ctx context.Context) (count int, held sandbox.WorkspaceUsage, err error) {
	err = s.read.QueryRowContext(ctx, `SELECT count(*), coalesce(sum(bytes), 0), coalesce(sum(files), 0) FROM workspaces`).
		Scan(&count, &held.Bytes, &held.Files)
	return count, held, sandbox.Wrap(err, "count workspaces", "")
}

// IdleWorkspaces returns the records of workspaces that were not used since t
// and that no live sandbox has.
func (s *Store) IdleWorkspaces(ctx context.Context, t time.Time) ([]Workspace, error) {
	return s.workspaces(ctx, ` WHERE used_at < ? AND `+unusedSQL, micros(t))
}

// unusedSQL is true for a workspace that no live sandbox has.
const unusedSQL = `NOT EXISTS (SELECT 1 FROM sandboxes s WHERE s.principal = w.principal AND s.ended_at = 0
	AND (s.workspace = w.name OR EXISTS (SELECT 1 FROM json_each(s.volumes) v WHERE v.value ->> 'workspace' = w.name)))`

func (s *Store) workspaces(ctx context.Context, where string, args ...any) ([]Workspace, error) {
	var list []Workspace
	err := collect(ctx, s.read, selectWorkspaceSQL+where, args, func(scan scanFunc) error {
		w, err := scanWorkspace(scan)
		list = append(list, w)
		return err
	})
	return list, sandbox.Wrap(err, "list workspaces", "")
}

// TouchWorkspace records that a workspace was used, and its usage unless usage
// is nil. The size of before is counted until now.
func (s *Store) TouchWorkspace(ctx context.Context, id string, used time.Time, usage *sandbox.WorkspaceUsage) error {
	if usage == nil {
		_, err := s.exec(ctx, `UPDATE workspaces SET used_at = max(used_at, ?) WHERE id = ?`, micros(used), id)
		return sandbox.Wrap(err, "store workspace", "")
	}
	err := s.meter(ctx, func(m *metering) error {
		if err := m.workspace(ctx, id, usage.Bytes); err != nil {
			return err
		}
		_, err := m.tx.ExecContext(ctx, `UPDATE workspaces SET used_at = max(used_at, ?), bytes = ?, files = ? WHERE id = ?`,
			micros(used), usage.Bytes, usage.Files, id)
		return err
	})
	return sandbox.Wrap(err, "store workspace", "")
}

// OtherWorkspaces returns the total usage of a principal's workspaces when each
// was last measured, without the workspaces with the IDs in but.
func (s *Store) OtherWorkspaces(ctx context.Context, p sandbox.Principal, but []string) (u sandbox.WorkspaceUsage, err error) {
	ids, err := json.Marshal(but)
	if err != nil {
		return u, sandbox.Wrap(err, "read workspaces", "")
	}
	err = s.read.QueryRowContext(ctx, `SELECT coalesce(sum(bytes), 0), coalesce(sum(files), 0) FROM workspaces
		WHERE principal = ? AND id NOT IN (SELECT value FROM json_each(?))`, p, string(ids)).Scan(&u.Bytes, &u.Files)
	return u, sandbox.Wrap(err, "read workspaces", "")
}

// DeleteWorkspace removes a record if no live sandbox has the workspace and it
// was not used since t. A zero t stands for any time. It reports whether it
// did. remove is called to remove the directory while no process can begin to
// use the workspace.
func (s *Store) DeleteWorkspace(ctx context.Context, id string, t time.Time, remove func() error) (bool, error) {
	var deleted bool
	err := s.meter(ctx, func(m *metering) error {
		if err := m.workspace(ctx, id, anySize); err != nil {
			return err
		}
		r, err := m.tx.ExecContext(ctx, `DELETE FROM workspaces AS w WHERE id = ? AND (? = 0 OR used_at < ?) AND `+unusedSQL,
			id, micros(t), micros(t))
		if err != nil {
			return err
		}
		n, err := r.RowsAffected()
		if deleted = n == 1; err != nil || !deleted {
			return err
		}
		return remove()
	})
	return deleted && err == nil, sandbox.Wrap(err, "delete workspace", "")
}

// SpendSignature records that a signature was used, until it expires. It
// reports false if the signature was used before.
func (s *Store) SpendSignature(ctx context.Context, signature []byte, expires time.Time) (bool, error) {
	if _, err := s.exec(ctx, `DELETE FROM spent WHERE expires_at < ?`, s.now().UnixMicro()); err != nil {
		return false, err
	}
	n, err := s.exec(ctx, `INSERT INTO spent VALUES (?, ?) ON CONFLICT DO NOTHING`, signature, micros(expires))
	return n == 1, sandbox.Wrap(err, "store signature", "")
}
