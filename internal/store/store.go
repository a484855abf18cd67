// Package store keeps the state that must outlive a process: sandboxes, runs,
// the processes that own them, workspaces, images, tokens, and the grants of OAuth
// clients. The state is one SQLite file in the state directory. Any number of
// processes may have it open at the same time.
//
// The engine uses the store for sandboxes, runs, workspaces, images and owners.
// The composition root passes its tokens to the HTTP edge. The store has no
// rules: it finds and changes rows, and does not decide about permissions. It
// keeps no environment of a sandbox and no secret of the operator, and of a
// token only the hash.
//
// A [Store] is open from Open to Close and safe for concurrent use. Changes
// that belong together are one transaction. Writes go to the operating system,
// but are not forced to the disk one by one. After a power failure, the last
// writes may be missing, but the file is intact. The sandboxes of these writes
// are gone then, too.
package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/usage"

	"modernc.org/sqlite" // also the database/sql driver of that name
)

// FileName is the name of the database in the state directory.
const FileName = "state.db"

// busyTimeout is how long a statement waits for the transaction of another
// process. Each transaction takes well under a millisecond.
const busyTimeout = 10 * time.Second

// maxReaders bounds the read-only connections.
const maxReaders = 4

//go:embed migrations/*.sql
var migrations embed.FS

// Options configure a Store.
type Options struct {
	// Dir is the state directory. It is created with mode 0700 if it is
	// missing.
	Dir string
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Metered, if not nil, is called with the amounts that were counted, after they
	// are recorded.
	Metered func(usage.Amounts)
	// Removal is the caller's right to remove Dir, or nil.
	Removal *Removal
}

// A Store is an open database.
type Store struct {
	dir string
	now func() time.Time
	use *os.File // has the lock of the directory's use; nil with a Removal

	// SQLite allows one writer at a time. With a single connection, the writers
	// of this process queue in Go, in order, and do not poll for the lock.
	write *sql.DB
	read  *sql.DB

	insertRun, finishRun, touch, getRun *sql.Stmt

	metered                                                                                           func(usage.Amounts)
	getMeter, addMeter, putMeter, addRun, getLimits, admitLimits, addHour, countHour, putHour, putDay *sql.Stmt
	// beforeWrite is called before each write of a transaction that counts usage,
	// before its commit, and after it. Tests kill the process there.
	beforeWrite func()
}

// Open opens the database in opts.Dir, and creates or upgrades it first. The
// caller must close it. The error is of kind [sandbox.Unsupported] if a newer
// version of the program made the database. It is of kind [sandbox.Unavailable]
// if the directory cannot be used.
func Open(ctx context.Context, opts Options) (*Store, error) {
	if opts.Dir == "" {
		return nil, sandbox.Errorf(sandbox.Invalid, "open store: the state directory is not set")
	}
	s := &Store{dir: opts.Dir, now: opts.Now, metered: opts.Metered}
	if s.now == nil {
		s.now = time.Now
	}
	if err := s.open(ctx, opts.Removal == nil); err != nil {
		s.Close()
		return nil, sandbox.Wrap(err, "open store", "")
	}
	return s, nil
}

func (s *Store) open(ctx context.Context, use bool) (err error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return unusable(err)
	}
	if use {
		if s.use, err = holdUse(s.dir); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(s.dir, ownersDir), 0o700); err != nil {
		return unusable(err)
	}
	// Several processes may find the file missing or old at the same moment.
	// Turning on the write-ahead log in particular does not wait for locks.
	unlock, err := lockPath(filepath.Join(s.dir, "state.lock"))
	if err != nil {
		return unusable(err)
	}
	defer unlock()

	// SQLite gives its side files the mode of the main file.
	name := filepath.Join(s.dir, FileName)
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return unusable(err)
	}
	if err := f.Close(); err != nil {
		return unusable(err)
	}
	if s.write, err = openDB(name, "_txlock=immediate", 1); err != nil {
		return err
	}
	if _, err := s.write.ExecContext(ctx, "PRAGMA journal_mode = WAL"); err != nil {
		return unusable(err)
	}
	if err := s.migrate(ctx); err != nil {
		return err
	}
	if s.read, err = openDB(name, "_pragma=query_only(1)", maxReaders); err != nil {
		return err
	}
	return s.prepare(ctx)
}

func openDB(name, param string, conns int) (*sql.DB, error) {
	u := url.URL{Path: filepath.ToSlash(name)}
	dsn := fmt.Sprintf("file:%s?%s&_pragma=busy_timeout(%d)&_pragma=synchronous(normal)&_pragma=foreign_keys(1)",
		u.EscapedPath(), param, busyTimeout.Milliseconds())
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, unusable(err)
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

func unusable(err error) error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "%w", err),
		"check that the state directory is writable and its disk has free space, or use another one with --state-dir")
}

// prepare prepares the statements that every run needs; the others are rare.
func (s *Store) prepare(ctx context.Context) (err error) {
	for _, p := range []struct {
		stmt **sql.Stmt
		db   *sql.DB
		text string
	}{
		{&s.insertRun, s.write, insertRunSQL},
		{&s.finishRun, s.write, finishRunSQL},
		{&s.touch, s.write, touchSQL},
		{&s.getRun, s.read, selectRunSQL + ` WHERE id = ?`},
		{&s.getMeter, s.write, selectMeterSQL},
		{&s.addMeter, s.write, insertMeterSQL},
		{&s.putMeter, s.write, updateMeterSQL},
		{&s.addRun, s.write, addRunSQL},
		{&s.getLimits, s.read, limitsOfSQL},
		{&s.admitLimits, s.write, limitsOfSQL},
		{&s.addHour, s.write, addHourSQL},
		{&s.countHour, s.write, countHourSQL},
		{&s.putHour, s.write, putHourSQL},
		{&s.putDay, s.write, putDaySQL},
	} {
		if *p.stmt, err = p.db.PrepareContext(ctx, p.text); err != nil {
			return err
		}
	}
	return nil
}

// Close closes the database.
func (s *Store) Close() error {
	var errs []error
	for _, db := range []*sql.DB{s.read, s.write} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	if s.use != nil {
		errs = append(errs, s.use.Close())
	}
	return errors.Join(errs...)
}

// Now returns the store's time with the precision of its records.
func (s *Store) Now() time.Time { return fromMicros(s.now().UnixMicro()) }

// migrate applies the missing migrations, each in its own transaction.
func (s *Store) migrate(ctx context.Context) error {
	const table = `CREATE TABLE IF NOT EXISTS migrations (
		name TEXT PRIMARY KEY, applied_at INTEGER NOT NULL) STRICT`
	if _, err := s.write.ExecContext(ctx, table); err != nil {
		return unusable(err)
	}
	var done []string
	err := collect(ctx, s.write, `SELECT name FROM migrations ORDER BY name`, nil, func(scan scanFunc) error {
		var name string
		err := scan(&name)
		done = append(done, name)
		return err
	})
	if err != nil {
		return err
	}
	entries, err := migrations.ReadDir("migrations")
	if err != nil {
		return err
	}
	var known []string
	for _, e := range entries {
		known = append(known, strings.TrimSuffix(e.Name(), ".sql"))
	}
	for _, name := range done {
		if !slices.Contains(known, name) {
			return sandbox.WithHint(
				sandbox.Errorf(sandbox.Unsupported, "%s was made by a newer version of this program (migration %s)", FileName, name),
				"update this program, or use another state directory with --state-dir")
		}
	}
	for _, name := range known {
		if slices.Contains(done, name) {
			continue
		}
		text, err := migrations.ReadFile(path.Join("migrations", name+".sql"))
		if err != nil {
			return err
		}
		err = s.tx(ctx, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, string(text)); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, `INSERT INTO migrations VALUES (?, ?)`, name, s.now().UnixMicro())
			return err
		})
		if err != nil {
			return fmt.Errorf("apply migration %s: %w", name, err)
		}
	}
	return nil
}

// tx runs f in a transaction. The transaction takes the write lock at its
// begin, so that rows that f has read do not change before it writes.
func (s *Store) tx(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return noSpace(err)
	}
	if err := f(tx); err != nil {
		return errors.Join(noSpace(err), tx.Rollback())
	}
	return noSpace(tx.Commit())
}

// sqliteFull is SQLite's error code for a full disk.
const sqliteFull = 13

// noSpace converts SQLite's error for a full disk to [sandbox.NoSpace], and
// leaves other errors unchanged.
func noSpace(err error) error {
	if e, ok := errors.AsType[*sqlite.Error](err); ok && e.Code()&0xff == sqliteFull {
		return sandbox.NoSpace(err)
	}
	return err
}

// exec runs one statement that writes, and returns the number of changed rows.
func (s *Store) exec(ctx context.Context, query string, args ...any) (int64, error) {
	r, err := s.write.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, noSpace(err)
	}
	return r.RowsAffected()
}

type scanFunc func(dest ...any) error

// collect calls each for every row of a query.
func collect(ctx context.Context, db *sql.DB, query string, args []any, each func(scanFunc) error) error {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicros(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(n).UTC()
}
