package store

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/glovebox-dev/glovebox/internal/filelock"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// useName is the lock file of the state directory's use. Each open Store holds a
// shared lock, and a [Removal] an exclusive one. The operating system frees the lock
// of a process that ends.
const useName = "use.lock"

// A Removal is the right to remove a state directory. No other Store of the
// directory is open or can be opened until Release.
type Removal struct{ file *os.File }

// LockForRemoval returns the right to remove the state directory dir, which must
// exist. The error wraps [sandbox.Conflict] if a Store of it is open.
func LockForRemoval(dir string) (*Removal, error) {
	f, err := lockUse(dir, exclusive)
	if errors.Is(err, filelock.ErrLocked) {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "state directory %s: a server or a command of Glovebox uses it", dir),
			"try again when it has ended")
	}
	if err != nil {
		return nil, sandbox.Wrap(unusable(err), "lock state directory", "")
	}
	return &Removal{f}, nil
}

// Release gives up the right. It is idempotent.
func (r *Removal) Release() error {
	err := r.file.Close()
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// holdUse takes the shared lock of an open Store. The error wraps
// [sandbox.Unavailable] while the state directory is being removed.
func holdUse(dir string) (*os.File, error) {
	f, err := lockUse(dir, shared)
	if errors.Is(err, filelock.ErrLocked) {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "state directory %s is being removed", dir),
			"wait until glovebox uninstall has ended, and try again")
	}
	if err != nil {
		return nil, unusable(err)
	}
	return f, nil
}

// lockUse locks the file useName of a directory, and returns [filelock.ErrLocked] if another
// lock forbids it.
func lockUse(dir string, exclusive bool) (*os.File, error) {
	name := filepath.Join(dir, useName)
	for {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if err := filelock.Lock(f, exclusive, false); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		// A removal may have ended between the two calls. The lock is then of a
		// file that is gone.
		locked, err := f.Stat()
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if there, err := os.Stat(name); err == nil && os.SameFile(there, locked) {
			return f, nil
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
}
