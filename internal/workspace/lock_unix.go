//go:build unix

package workspace

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/safepath"
)

// makeLocked makes a directory in dir that this process holds a lock of.
func makeLocked(dir string) (path string, unlock func(), err error) {
	for {
		path = filepath.Join(dir, rand.Text())
		if err := os.Mkdir(path, 0o700); err != nil {
			return "", nil, err
		}
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // taken for stale before it was locked
		}
		if err != nil {
			return "", nil, err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			return "", nil, errors.Join(err, f.Close())
		}
		if _, err := os.Stat(path); err == nil {
			return path, func() { f.Close() }, nil
		}
		f.Close()
	}
}

// removeStale removes the directories of processes that are no more.
func (s *Set) removeStale() error {
	tmp := filepath.Join(s.path, "tmp")
	entries, err := os.ReadDir(tmp)
	if err != nil {
		return err
	}
	for _, e := range entries {
		f, err := os.Open(filepath.Join(tmp, e.Name()))
		if err != nil {
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			err = removeAll(tmp, e.Name())
		}
		f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// removeAll removes what a sandbox may have filled.
func removeAll(dir, name string) error {
	d, err := safepath.OpenDir(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.RemoveAll(name)
}

// isBadLink reports whether err says that links lead nowhere or out. os.Root
// has no error of its own for the second.
func isBadLink(err error) bool {
	var p *fs.PathError
	return errors.Is(err, unix.ELOOP) || errors.As(err, &p) && p.Err.Error() == "path escapes from parent"
}

// isBadName reports whether err says that files cannot have that name here,
// which package safepath has said before.
func isBadName(error) bool { return false }
