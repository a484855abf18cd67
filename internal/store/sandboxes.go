package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/usage"
)

// A Sandbox is the record of one sandbox. Expires is not stored, because it
// follows from the limits.
type Sandbox struct {
	sandbox.Sandbox
	Principal sandbox.Principal
	// Owner is the identifier of the process that supervises the sandbox.
	// Detached means that the sandbox is to outlive that process.
	Owner    string
	Detached bool
	// Ref is the driver's reference, or "" until the box exists.
	Ref string
	// HasEnv means that the sandbox has an environment, which is not stored
	// here.
	HasEnv bool
	// StopCause is set when a process began to stop the sandbox. It explains to
	// other processes why the box is gone.
	StopCause string
}

const selectSandboxSQL = `SELECT id, principal, owner, detached, driver, ref, state, name, image, network,
	has_env, limits, receipt, created_at, used_at, ended_at, cause, stop_cause,
	ends_at, at_end, restless, labels, workspace, volumes,
	saved_at, saved_bytes, saved_build, save_error, save_failed_at FROM sandboxes`

func scanSandbox(scan scanFunc) (Sandbox, error) {
	var (
		r                          Sandbox
		limits, receipt, labels    []byte
		volumes                    []byte
		created, used, ended, ends int64
		saved, failed              int64
	)
	err := scan(&r.ID, &r.Principal, &r.Owner, &r.Detached, &r.Driver, &r.Ref, &r.State, &r.Name, &r.Image, &r.Network,
		&r.HasEnv, &limits, &receipt, &created, &used, &ended, &r.Cause, &r.StopCause,
		&ends, &r.AtEnd, &r.Restless, &labels, &r.Workspace, &volumes,
		&saved, &r.Hibernation.Bytes, &r.Hibernation.Build, &r.Hibernation.Error, &failed)
	if err != nil {
		return Sandbox{}, err
	}
	r.Created, r.Used, r.Ended, r.Ends = fromMicros(created), fromMicros(used), fromMicros(ended), fromMicros(ends)
	r.Hibernation.Saved, r.Hibernation.Failed = fromMicros(saved), fromMicros(failed)
	if err := json.Unmarshal(limits, &r.Limits); err != nil {
		return Sandbox{}, fmt.Errorf("decode limits of %s: %w", r.ID, err)
	}
	if err := json.Unmarshal(receipt, &r.Receipt); err != nil {
		return Sandbox{}, fmt.Errorf("decode receipt of %s: %w", r.ID, err)
	}
	if err := json.Unmarshal(labels, &r.Labels); err != nil {
		return Sandbox{}, fmt.Errorf("decode labels of %s: %w", r.ID, err)
	}
	if err := json.Unmarshal(volumes, &r.Volumes); err != nil {
		return Sandbox{}, fmt.Errorf("decode volumes of %s: %w", r.ID, err)
	}
	if len(r.Volumes) == 0 {
		r.Volumes = nil
	}
	return r, nil
}

// InsertSandbox adds a record. Its identifier must be new.
func (s *Store) InsertSandbox(ctx context.Context, r Sandbox) error {
	return s.AdmitSandbox(ctx, r, func([]usage.Account) error { return nil })
}

// AdmitSandbox is InsertSandbox if admit, which gets the accounts with limits of the
// principal, returns nil. What they use does not change meanwhile.
func (s *Store) AdmitSandbox(ctx context.Context, r Sandbox, admit func([]usage.Account) error) error {
	limits, err := json.Marshal(r.Limits)
	if err != nil {
		return err
	}
	receipt, err := json.Marshal(r.Receipt)
	if err != nil {
		return err
	}
	labels, err := json.Marshal(r.Labels)
	if err != nil {
		return err
	}
	volumes := []byte("[]")
	if len(r.Volumes) > 0 {
		if volumes, err = json.Marshal(r.Volumes); err != nil {
			return err
		}
	}
	err = s.tx(ctx, func(tx *sql.Tx) error {
		accounts, err := s.accounts(ctx, tx, tx.StmtContext(ctx, s.admitLimits), r.Principal)
		if err != nil {
			return err
		}
		if err := admit(accounts); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO sandboxes (id, principal, owner, detached, driver, ref, state, name, image, network,
			has_env, limits, receipt, created_at, used_at, ends_at, at_end, restless, labels, workspace, volumes)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			r.ID, r.Principal, r.Owner, r.Detached, r.Driver, r.Ref, r.State, r.Name, r.Image, r.Network,
			r.HasEnv, string(limits), string(receipt), micros(r.Created), micros(r.Used), micros(r.Ends), r.AtEnd, r.Restless, string(labels), r.Workspace, string(volumes))
		return err
	})
	return sandbox.Wrap(err, "store sandbox", r.ID)
}

// StartedSandbox records that a starting sandbox runs, and begins to count its usage
// for a label. boxCounts is [usage.Counters].BoxCounts. It reports false if the sandbox is no longer starting.
func (s *Store) StartedSandbox(ctx context.Context, id, ref string, receipt sandbox.Receipt, used time.Time, label string, boxCounts bool) (bool, error) {
	text, err := json.Marshal(receipt)
	if err != nil {
		return false, err
	}
	var started bool
	err = s.meter(ctx, func(m *metering) error {
		r, err := m.tx.ExecContext(ctx, `UPDATE sandboxes SET state = ?, ref = ?, receipt = ?, used_at = ? WHERE id = ? AND state = ?`,
			sandbox.Running, ref, string(text), micros(used), id, sandbox.Starting)
		if err != nil {
			return err
		}
		n, err := r.RowsAffected()
		if started = n == 1; err != nil || !started {
			return err
		}
		return m.begin(ctx, id, label, boxCounts)
	})
	return started && err == nil, sandbox.Wrap(err, "store sandbox", id)
}

// Sandbox returns the record of one sandbox, or an error of kind NotFound.
func (s *Store) Sandbox(ctx context.Context, id string) (Sandbox, error) {
	r, err := scanSandbox(s.read.QueryRowContext(ctx, selectSandboxSQL+` WHERE id = ?`, id).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return Sandbox{}, sandbox.Errorf(sandbox.NotFound, "no sandbox %s", id)
	}
	return r, sandbox.Wrap(err, "read sandbox", id)
}

// Sandboxes returns the records of at most limit sandboxes of a principal. Live
// sandboxes come before ended ones, and the newest first in each group.
func (s *Store) Sandboxes(ctx context.Context, p sandbox.Principal, limit int) ([]Sandbox, error) {
	return s.sandboxes(ctx, ` WHERE principal = ? ORDER BY ended_at != 0, created_at DESC, id LIMIT ?`, p, limit)
}

// LiveSandboxes returns the records of all sandboxes that have not ended.
func (s *Store) LiveSandboxes(ctx context.Context) ([]Sandbox, error) {
	return s.sandboxes(ctx, ` WHERE ended_at = 0 ORDER BY created_at, id`)
}

// LiveIDs returns the identifiers of the sandboxes that have not ended. It costs much less
// than their records.
func (s *Store) LiveIDs(ctx context.Context) ([]string, error) {
	var ids []string
	err := collect(ctx, s.read, `SELECT id FROM sandboxes WHERE ended_at = 0 ORDER BY created_at, id`, nil, func(scan scanFunc) error {
		var id string
		err := scan(&id)
		ids = append(ids, id)
		return err
	})
	return ids, sandbox.Wrap(err, "list sandboxes", "")
}

func (s *Store) sandboxes(ctx context.Context, where string, args ...any) ([]Sandbox, error) {
	var list []Sandbox
	err := collect(ctx, s.read, selectSandboxSQL+where, args, func(scan scanFunc) error {
		r, err := scanSandbox(scan)
		list = append(list, r)
		return err
	})
	return list, sandbox.Wrap(err, "list sandboxes", "")
}

const touchSQL = `UPDATE sandboxes SET used_at = max(used_at, ?) WHERE id = ?`

// TouchSandbox records that a sandbox was used.
func (s *Store) TouchSandbox(ctx context.Context, id string, used time.Time) error {
	_, err := s.touch.ExecContext(ctx, micros(used), id)
	return sandbox.Wrap(noSpace(err), "store sandbox", id)
}

// HibernatedSandbox records that a running sandbox hibernates, or that a
// hibernated one runs again. It reports false if the sandbox is in neither
// state.
func (s *Store) HibernatedSandbox(ctx context.Context, id string, hibernated bool) (bool, error) {
	from, to := sandbox.Hibernated, sandbox.Running
	if hibernated {
		from, to = to, from
	}
	n, err := s.exec(ctx, `UPDATE sandboxes SET state = ? WHERE id = ? AND state IN (?, ?) AND ended_at = 0`, to, id, from, to)
	return n == 1, sandbox.Wrap(err, "store sandbox", id)
}

// SetSandboxEnd records when a sandbox ends.
func (s *Store) SetSandboxEnd(ctx context.Context, id string, ends time.Time) error {
	_, err := s.exec(ctx, `UPDATE sandboxes SET ends_at = ? WHERE id = ?`, micros(ends), id)
	return sandbox.Wrap(err, "store sandbox", id)
}

// ClaimSandbox sets the owner of a live sandbox to to, if it is still from. It
// reports whether it did. Of several processes that try, only one succeeds.
func (s *Store) ClaimSandbox(ctx context.Context, id, from, to string) (bool, error) {
	n, err := s.exec(ctx, `UPDATE sandboxes SET owner = ? WHERE id = ? AND owner = ? AND ended_at = 0`, to, id, from)
	return n == 1, sandbox.Wrap(err, "claim sandbox", id)
}

// StoppingSandbox records why a sandbox is about to be stopped. The first cause
// stays.
func (s *Store) StoppingSandbox(ctx context.Context, id, cause string) error {
	_, err := s.exec(ctx, `UPDATE sandboxes SET stop_cause = ? WHERE id = ? AND ended_at = 0 AND stop_cause = ''`, cause, id)
	return sandbox.Wrap(err, "store sandbox", id)
}

// EndSandbox records that a sandbox stopped, and ends its running runs with the
// verdict v. It counts the last reading, whose SandboxID is not needed, and those runs.
// It reports false if the sandbox had ended before.
func (s *Store) EndSandbox(ctx context.Context, id, cause string, at time.Time, v sandbox.Verdict, last Reading) (bool, error) {
	last.SandboxID = id
	var ended bool
	err := s.meter(ctx, func(m *metering) error {
		if _, err := m.find(ctx, id); err != nil { // which makes a missing meter of a live sandbox
			return err
		}
		r, err := m.tx.ExecContext(ctx, `UPDATE sandboxes SET state = ?, cause = ?, ended_at = ? WHERE id = ? AND ended_at = 0`,
			sandbox.Stopped, cause, micros(at), id)
		if err != nil {
			return err
		}
		n, err := r.RowsAffected()
		if ended = n == 1; err != nil {
			return err
		}
		if ended {
			if err := m.read(ctx, last); err != nil {
				return err
			}
		}
		return m.endRuns(ctx, id, at, last.Until, v)
	})
	return ended && err == nil, sandbox.Wrap(err, "store sandbox", id)
}

// endRuns ends the running runs of a sandbox. Their time counts until the sandbox was
// known to exist.
func (m *metering) endRuns(ctx context.Context, id string, at, until time.Time, v sandbox.Verdict) error {
	rows, err := m.tx.QueryContext(ctx, `SELECT started_at FROM runs WHERE sandbox_id = ? AND ended_at = 0`, id)
	if err != nil {
		return err
	}
	var begun []time.Time
	for rows.Next() {
		var t int64
		if err := rows.Scan(&t); err != nil {
			return errors.Join(err, rows.Close())
		}
		begun = append(begun, fromMicros(t))
	}
	if err := rows.Err(); err != nil || len(begun) == 0 {
		return err
	}
	_, err = m.tx.ExecContext(ctx, `UPDATE runs SET verdict = ?, cause = ?, next_step = ?, ended_at = max(?, started_at)
		WHERE sandbox_id = ? AND ended_at = 0`, v.Code, v.Cause, v.NextStep, micros(at), id)
	if err != nil {
		return err
	}
	for _, from := range begun {
		to := until
		if to.IsZero() || to.After(at) {
			to = from
		}
		if err := m.ended(ctx, id, from, to, 0); err != nil {
			return err
		}
	}
	return nil
}

// DeleteSandbox removes the record of a sandbox with the records of its runs.
func (s *Store) DeleteSandbox(ctx context.Context, id string) error {
	_, err := s.exec(ctx, `DELETE FROM sandboxes WHERE id = ?`, id)
	return sandbox.Wrap(err, "delete sandbox", id)
}

// SandboxesEndedBefore returns the identifiers of sandboxes that stopped
// before t.
func (s *Store) SandboxesEndedBefore(ctx context.Context, t time.Time) ([]string, error) {
	var ids []string
	err := collect(ctx, s.read, `SELECT id FROM sandboxes WHERE ended_at != 0 AND ended_at < ?`, []any{micros(t)},
		func(scan scanFunc) error {
			var id string
			err := scan(&id)
			ids = append(ids, id)
			return err
		})
	return ids, sandbox.Wrap(err, "list sandboxes", "")
}
