package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Snapshot is the record of a snapshot of a sandbox.
type Snapshot struct {
	sandbox.Snapshot
	Principal sandbox.Principal
	// Owner is the process that makes it, and Driver the driver that keeps it.
	Owner, Driver string
	// Internal snapshots are for a run of their sandbox. Their owners do not see them.
	Internal bool
	// Reserved is how many bytes the snapshot may have at most while it is being made.
	Reserved int64
	// Needed means that the run of an internal snapshot goes on. The store sets it.
	Needed bool
	Setup  SnapshotSetup
}

// A SnapshotSetup is what the sandbox of a snapshot was made with.
type SnapshotSetup struct {
	// Image is the image by the name that people use, and ImageID as the driver is
	// asked for it.
	Image     string          `json:"image"`
	ImageID   string          `json:"image_id"`
	Network   sandbox.Network `json:"network"`
	Limits    sandbox.Limits  `json:"limits"`
	Workspace string          `json:"workspace,omitempty"`
	Writable  []string        `json:"writable,omitempty"`
	// Disk is [sandbox.Snapshot].Disk.
	Disk bool `json:"disk,omitempty"`
	// Labels are the sandbox's.
	Labels map[string]string `json:"labels,omitempty"`
}

const selectSnapshotSQL = `SELECT id, principal, owner, driver, state, name, parent, sandbox, setup, bytes, created_at, internal, reserved, build,
	EXISTS (SELECT 1 FROM runs WHERE undo = snapshots.id AND undo != '' AND ended_at = 0) FROM snapshots`

func scanSnapshot(scan scanFunc) (Snapshot, error) {
	var s Snapshot
	var setup string
	var created int64
	err := scan(&s.ID, &s.Principal, &s.Owner, &s.Driver, &s.State, &s.Name, &s.Parent, &s.Sandbox, &setup, &s.Bytes, &created, &s.Internal, &s.Reserved, &s.Build, &s.Needed)
	if err == nil {
		err = json.Unmarshal([]byte(setup), &s.Setup)
	}
	s.Created, s.Image, s.Workspace, s.Labels, s.Disk = fromMicros(created), s.Setup.Image, s.Setup.Workspace, s.Setup.Labels, s.Setup.Disk
	return s, err
}

// AddSnapshot records a snapshot that is about to be made, unless the principal has most
// snapshots or mostBytes in them; the error is then of kind Exhausted. Snapshots that are
// being made count with the bytes that they reserved. It sets the parent.
func (s *Store) AddSnapshot(ctx context.Context, r *Snapshot, most int, mostBytes int64) error {
	setup, err := json.Marshal(r.Setup)
	if err != nil {
		return err
	}
	err = s.tx(ctx, func(tx *sql.Tx) error {
		var count int
		var bytes, reserved int64
		err := tx.QueryRowContext(ctx, `SELECT count(*), coalesce(sum(bytes), 0), coalesce(sum(reserved), 0) FROM snapshots WHERE principal = ?`, r.Principal).Scan(&count, &bytes, &reserved)
		if err != nil {
			return err
		}
		if count >= most || bytes >= mostBytes {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "you have %d snapshots of %s, and may have %d of %s",
				count, sandbox.FormatBytes(bytes), most, sandbox.FormatBytes(mostBytes)), "delete snapshots that you do not need")
		}
		if bytes+reserved >= mostBytes {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "you have snapshots of %s, others that are being made may have %s, and you may have %s",
				sandbox.FormatBytes(bytes), sandbox.FormatBytes(reserved), sandbox.FormatBytes(mostBytes)), "try again when they are made, or delete snapshots that you do not need")
		}
		err = tx.QueryRowContext(ctx, `SELECT snapshot FROM snapshot_bases WHERE sandbox = ?`, r.Sandbox).Scan(&r.Parent)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO snapshots (id, principal, owner, driver, state, name, parent, sandbox, setup, created_at, internal, reserved)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			r.ID, r.Principal, r.Owner, r.Driver, r.State, r.Name, r.Parent, r.Sandbox, string(setup), micros(r.Created), r.Internal, r.Reserved)
		return err
	})
	return sandbox.Wrap(err, "record snapshot", "")
}

// KeptSnapshot records that a snapshot is complete, with its bytes and its build, and that
// its sandbox has its state.
// The error is of kind Exhausted if the principal would have more than mostBytes in
// complete snapshots. How large one is, is known only when it was taken.
func (s *Store) KeptSnapshot(ctx context.Context, r Snapshot, mostBytes int64) error {
	err := s.tx(ctx, func(tx *sql.Tx) error {
		all := r.Bytes
		err := tx.QueryRowContext(ctx, `SELECT ? + coalesce(sum(bytes), 0) FROM snapshots
			WHERE id != ? AND principal = (SELECT principal FROM snapshots WHERE id = ?)`, r.Bytes, r.ID, r.ID).Scan(&all)
		if err != nil {
			return err
		}
		if all > mostBytes {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "with this one, your snapshots would have %s, and may have %s",
				sandbox.FormatBytes(all), sandbox.FormatBytes(mostBytes)), "delete snapshots that you do not need")
		}
		if _, err := tx.ExecContext(ctx, `UPDATE snapshots SET state = ?, bytes = ?, build = ?, reserved = 0 WHERE id = ?`, sandbox.SnapshotKept, r.Bytes, r.Build, r.ID); err != nil {
			return err
		}
		return setBase(ctx, tx, r.Sandbox, r.ID)
	})
	return sandbox.Wrap(err, "record snapshot", r.ID)
}

func setBase(ctx context.Context, tx *sql.Tx, ofSandbox, snapshot string) error {
	// The sandbox's record may be gone by now.
	_, err := tx.ExecContext(ctx, `INSERT INTO snapshot_bases SELECT id, ? FROM sandboxes WHERE id = ?
		ON CONFLICT (sandbox) DO UPDATE SET snapshot = excluded.snapshot`, snapshot, ofSandbox)
	return err
}

// BaseSnapshot records that a sandbox got the state of a snapshot.
func (s *Store) BaseSnapshot(ctx context.Context, ofSandbox, snapshot string) error {
	err := s.tx(ctx, func(tx *sql.Tx) error { return setBase(ctx, tx, ofSandbox, snapshot) })
	return sandbox.Wrap(err, "record base", ofSandbox)
}

// LostSnapshot records that the driver no longer has a snapshot.
func (s *Store) LostSnapshot(ctx context.Context, id string) error {
	_, err := s.exec(ctx, `UPDATE snapshots SET state = ?, bytes = 0 WHERE id = ?`, sandbox.SnapshotLost, id)
	return sandbox.Wrap(err, "record lost snapshot", id)
}

// Snapshots returns the snapshots of a principal, or of all if p is "", the newest
// first.
func (s *Store) Snapshots(ctx context.Context, p sandbox.Principal) ([]Snapshot, error) {
	var all []Snapshot
	err := collect(ctx, s.read, selectSnapshotSQL+` WHERE principal = ? OR ? = '' ORDER BY created_at DESC, id`, []any{p, p}, func(scan scanFunc) error {
		r, err := scanSnapshot(scan)
		all = append(all, r)
		return err
	})
	return all, sandbox.Wrap(err, "list snapshots", "")
}

// RemoveSnapshot removes the record of a snapshot. Its children become those of its
// parent, and so do the sandboxes that have its state.
func (s *Store) RemoveSnapshot(ctx context.Context, id string) error {
	err := s.tx(ctx, func(tx *sql.Tx) error {
		var parent string
		err := tx.QueryRowContext(ctx, `DELETE FROM snapshots WHERE id = ? RETURNING parent`, id).Scan(&parent)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE snapshots SET parent = ? WHERE parent = ?`, parent, id); err != nil {
			return err
		}
		if parent == "" {
			_, err = tx.ExecContext(ctx, `DELETE FROM snapshot_bases WHERE snapshot = ?`, id)
		} else {
			_, err = tx.ExecContext(ctx, `UPDATE snapshot_bases SET snapshot = ? WHERE snapshot = ?`, parent, id)
		}
		return err
	})
	return sandbox.Wrap(err, "remove snapshot", id)
}

// SnapshotStates are the snapshots of one state and one build.
type SnapshotStates struct {
	State sandbox.SnapshotState
	SavedStates
}

// SnapshotStates returns the snapshots of the state directory, by state and build. It
// includes internal ones.
func (s *Store) SnapshotStates(ctx context.Context) ([]SnapshotStates, error) {
	var list []SnapshotStates
	err := collect(ctx, s.read, `SELECT state, build, count(*), sum(bytes), min(created_at) FROM snapshots
		GROUP BY state, build ORDER BY state, build`, nil, func(scan scanFunc) error {
		var st SnapshotStates
		var oldest int64
		err := scan(&st.State, &st.Build, &st.Count, &st.Bytes, &oldest)
		st.Oldest = fromMicros(oldest)
		list = append(list, st)
		return err
	})
	return list, sandbox.Wrap(err, "count snapshots", "")
}
