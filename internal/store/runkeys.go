package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Bounds of the keys of runs. A key that is beyond a bound is forgotten, the one of the
// longest unused first.
const (
	keepKey   = time.Hour // after its last use
	mostKeys  = 256       // of a principal
	mostOfAll = 4096
)

// putKey records the key of a new run. The error is of kind Conflict if the key is in
// use.
func (s *Store) putKey(ctx context.Context, tx *sql.Tx, r Run) error {
	now := s.now()
	if _, err := tx.ExecContext(ctx, `DELETE FROM run_keys WHERE expires_at <= ?`, micros(now)); err != nil {
		return err
	}
	res, err := tx.ExecContext(ctx, `INSERT OR IGNORE INTO run_keys (principal, key_hash, request, run_id, expires_at) VALUES (?, ?, ?, ?, ?)`,
		r.Principal, r.Key.Hash[:], r.Key.Request[:], r.ID, micros(now.Add(keepKey)))
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil {
		return err
	} else if n == 0 {
		return sandbox.Errorf(sandbox.Conflict, "another run has its idempotency key")
	}
	// The new key is the one with the latest expiry.
	const oldest = `DELETE FROM run_keys WHERE (principal, key_hash) IN
		(SELECT principal, key_hash FROM run_keys WHERE principal = ? ORDER BY expires_at DESC, run_id = ? DESC LIMIT -1 OFFSET ?)`
	if _, err := tx.ExecContext(ctx, oldest, r.Principal, r.ID, mostKeys); err != nil {
		return err
	}
	var all int
	if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM run_keys`).Scan(&all); err != nil || all <= mostOfAll {
		return err
	}
	var largest sandbox.Principal
	var most int
	const query = `SELECT principal, count(*) AS n FROM run_keys GROUP BY principal ORDER BY n DESC, principal LIMIT 1`
	if err := tx.QueryRowContext(ctx, query).Scan(&largest, &most); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, oldest, largest, r.ID, max(most-(all-mostOfAll), 0))
	return err
}

// KeyedRun returns the identifier of the run that a request of p with that key began,
// and records the use of the key. The error is of kind NotFound if there is none, and
// Conflict if it was for another request.
func (s *Store) KeyedRun(ctx context.Context, p sandbox.Principal, key sandbox.RunKey) (runID string, err error) {
	now := s.now()
	var request []byte
	const query = `UPDATE run_keys SET expires_at = ? WHERE principal = ? AND key_hash = ? AND expires_at > ? RETURNING request, run_id`
	err = s.write.QueryRowContext(ctx, query, micros(now.Add(keepKey)), p, key.Hash[:], micros(now)).Scan(&request, &runID)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return "", sandbox.Errorf(sandbox.NotFound, "no run has this idempotency key")
	case err != nil:
		return "", sandbox.Wrap(noSpace(err), "find run by key", "")
	case [32]byte(request) != key.Request:
		return "", sandbox.WithHint(
			sandbox.Errorf(sandbox.Conflict, "idempotency_key: a call with other arguments had this key"),
			"use a new key for a new call")
	}
	return runID, nil
}

// ForgetKeys removes the keys that were not used for an hour.
func (s *Store) ForgetKeys(ctx context.Context) error {
	_, err := s.exec(ctx, `DELETE FROM run_keys WHERE expires_at <= ?`, micros(s.now()))
	return sandbox.Wrap(err, "forget keys of runs", "")
}
