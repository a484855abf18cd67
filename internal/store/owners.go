package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/filelock"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const (
	ownersDir  = "owners"
	lockSuffix = ".lock"
	sockSuffix = ".sock"

	// staleLock is the age at which a lock file without an owner's row is
	// removed. Its process was killed while it registered.
	staleLock = time.Hour
)

// Modes of a lock.
const (
	shared    = false
	exclusive = true
)

// An Owner is this process's registration as a supervisor of sandboxes. It
// holds an exclusive advisory lock on a file of its own. The operating system
// frees the lock when the process ends, however it ends, so other processes can
// detect that. Release ends it.
type Owner struct {
	id string
	s  *Store

	mu   sync.Mutex
	file *os.File // nil when released
}

// RegisterOwner registers a new owner, which is alive until Release or the end
// of this process.
func (s *Store) RegisterOwner(ctx context.Context, detached bool) (*Owner, error) {
	o := &Owner{id: strings.ToLower(rand.Text()), s: s}
	if err := o.register(ctx, detached); err != nil {
		return nil, errors.Join(sandbox.Wrap(err, "register owner", ""), o.Release(context.WithoutCancel(ctx)))
	}
	return o, nil
}

func (o *Owner) register(ctx context.Context, detached bool) (err error) {
	// Take the lock before inserting the row: a process that reads the row must
	// find the file locked.
	if o.file, err = os.OpenFile(o.s.lockFile(o.id), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return err
	}
	if err := filelock.Lock(o.file, exclusive, false); err != nil {
		return err
	}
	_, err = o.s.exec(ctx, `INSERT INTO owners (id, pid, detached, started_at) VALUES (?, ?, ?, ?)`,
		o.id, os.Getpid(), detached, o.s.now().UnixMicro())
	return err
}

// ID returns the owner's identifier in the records of sandboxes.
func (o *Owner) ID() string { return o.id }

// Release ends the registration. Other owners may then claim the sandboxes that
// name it. It is idempotent.
func (o *Owner) Release(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.file == nil {
		return nil
	}
	err := o.file.Close()
	o.file = nil
	err = errors.Join(err, o.s.dropOwner(ctx, o.id))
	return sandbox.Wrap(err, "release owner", "")
}

func (s *Store) dropOwner(ctx context.Context, id string) error {
	var errs []error
	for _, name := range []string{s.lockFile(id), s.OwnerSocket(id)} {
		if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	err := errors.Join(errs...)
	_, warmErr := s.exec(ctx, `DELETE FROM warm WHERE owner = ?`, id)
	_, dbErr := s.exec(ctx, `DELETE FROM owners WHERE id = ?`, id)
	return errors.Join(err, warmErr, dbErr)
}

// OwnerAlive reports whether the process of an owner is alive. It is false for
// an unknown owner.
func (s *Store) OwnerAlive(id string) (bool, error) {
	if id == "" || strings.ContainsAny(id, `/\.`) {
		return false, nil
	}
	alive, err := locked(s.lockFile(id))
	if err != nil {
		return false, fmt.Errorf("check owner %s: %w", id, err)
	}
	return alive, nil
}

// Served reports whether a server of this state directory runs: a live owner of
// detached sandboxes.
func (s *Store) Served(ctx context.Context) (bool, error) {
	pids, err := s.liveOwners(ctx, ` WHERE detached = 1`)
	return len(pids) > 0, err
}

// Servers returns the IDs of the live owners of detached sandboxes, in order.
func (s *Store) Servers(ctx context.Context) ([]string, error) {
	var ids []string
	err := collect(ctx, s.read, `SELECT id FROM owners WHERE detached = 1 ORDER BY id`, nil, func(scan scanFunc) error {
		var id string
		err := scan(&id)
		ids = append(ids, id)
		return err
	})
	if err != nil {
		return nil, sandbox.Wrap(err, "list servers", "")
	}
	var live []string
	for _, id := range ids {
		alive, err := s.OwnerAlive(id)
		if err != nil {
			return nil, err
		}
		if alive {
			live = append(live, id)
		}
	}
	return live, nil
}

// LiveOwners returns the process IDs of the owners that are alive, each once, in
// order.
func (s *Store) LiveOwners(ctx context.Context) ([]int, error) { return s.liveOwners(ctx, "") }

func (s *Store) liveOwners(ctx context.Context, where string) ([]int, error) {
	owners := map[string]int{}
	err := collect(ctx, s.read, `SELECT id, pid FROM owners`+where, nil, func(scan scanFunc) error {
		var id string
		var pid int
		err := scan(&id, &pid)
		owners[id] = pid
		return err
	})
	if err != nil {
		return nil, sandbox.Wrap(err, "list owners", "")
	}
	var pids []int
	for id, pid := range owners {
		alive, err := s.OwnerAlive(id)
		if err != nil {
			return nil, err
		}
		if alive {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// ForgetDeadOwners removes the rows and files of dead owners. It leaves their
// sandboxes unchanged: these name an unknown owner, which counts as dead.
func (s *Store) ForgetDeadOwners(ctx context.Context) error {
	known := map[string]bool{}
	err := collect(ctx, s.read, `SELECT id FROM owners`, nil, func(scan scanFunc) error {
		var id string
		err := scan(&id)
		known[id] = true
		return err
	})
	if err != nil {
		return err
	}
	var errs []error
	for id := range known {
		alive, err := s.OwnerAlive(id)
		if err == nil && !alive {
			err = s.dropOwner(ctx, id)
		}
		errs = append(errs, err)
	}
	entries, err := os.ReadDir(filepath.Join(s.dir, ownersDir))
	errs = append(errs, err)
	for _, e := range entries {
		if id, _, _ := strings.Cut(e.Name(), "."); !known[id] {
			errs = append(errs, s.dropStaleLock(e))
		}
	}
	return sandbox.Wrap(errors.Join(errs...), "remove dead owners", "")
}

func (s *Store) dropStaleLock(e fs.DirEntry) error {
	info, err := e.Info()
	if errors.Is(err, fs.ErrNotExist) || err == nil && s.now().Sub(info.ModTime()) < staleLock {
		return nil
	}
	if err != nil {
		return err
	}
	err = os.Remove(filepath.Join(s.dir, ownersDir, e.Name()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// OwnerSocket returns the path of a socket on which an owner may listen for
// other processes of the operator. The socket is removed with the owner.
func (s *Store) OwnerSocket(id string) string {
	return filepath.Join(s.dir, ownersDir, id+sockSuffix)
}

func (s *Store) lockFile(owner string) string {
	return filepath.Join(s.dir, ownersDir, owner+lockSuffix)
}

// locked reports whether the lock of the file of that name is taken.
func locked(name string) (bool, error) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	// The lock is shared, so that two processes that check at the same moment
	// do not take each other for the owner.
	switch err := filelock.Lock(f, shared, false); {
	case err == nil:
		return false, nil
	case errors.Is(err, filelock.ErrLocked):
		return true, nil
	default:
		return false, err
	}
}

// lockPath waits for the lock of a file, which it creates if necessary. It
// returns the function that frees the lock.
func lockPath(name string) (unlock func(), err error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := filelock.Lock(f, exclusive, true); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

// AddWarm records that this process made a box in advance. The box is not a
// stray while this process lives.
func (o *Owner) AddWarm(ctx context.Context, id string) error {
	_, err := o.s.exec(ctx, `INSERT INTO warm (id, owner) VALUES (?, ?)`, id, o.id)
	return sandbox.Wrap(err, "record warm box", id)
}

// RemoveWarm removes the record of AddWarm. It has no effect without such a
// record.
func (o *Owner) RemoveWarm(ctx context.Context, id string) error {
	_, err := o.s.exec(ctx, `DELETE FROM warm WHERE id = ?`, id)
	return sandbox.Wrap(err, "remove record of warm box", id)
}

// WarmBoxes returns the identifiers of the boxes that live processes have made
// in advance.
func (s *Store) WarmBoxes(ctx context.Context) ([]string, error) {
	owners := map[string][]string{}
	err := collect(ctx, s.read, `SELECT id, owner FROM warm`, nil, func(scan scanFunc) error {
		var id, owner string
		err := scan(&id, &owner)
		owners[owner] = append(owners[owner], id)
		return err
	})
	if err != nil {
		return nil, sandbox.Wrap(err, "list warm boxes", "")
	}
	var ids []string
	for owner, of := range owners {
		alive, err := s.OwnerAlive(owner)
		if err != nil {
			return nil, err
		}
		if alive {
			ids = append(ids, of...)
		}
	}
	return ids, nil
}
