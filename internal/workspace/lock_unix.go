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

// makeLocked creates a directory in dir and locks it for this process.
func makeLocked(dir string) (path string, unlock func(), err error) {
	for {
		path = filepath.Join(dir, rand.Text())
		if err := os.Mkdir(path, 0o700); err != nil {
			return "", nil, err
		}
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // another process removed it as stale before it was locked
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

// removeStale removes the directories of processes that have ended.
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

// removeAll removes a directory that a sandbox may have filled.
func removeAll(dir, name string) error {
	d, err := safepath.OpenDir(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.RemoveAll(name)
}

// isBadLink reports whether err means that links form a circle or lead out.
// os.Root has no error value for the second case.
func isBadLink(err error) bool {
	var p *fs.PathError
	return errors.Is(err, unix.ELOOP) || errors.As(err, &p) && p.Err.Error() == "path escapes from parent"
}

// isBadName reports whether err means that the system does not allow the name. On
// Unix, package safepath has checked it before.
func isBadName(error) bool { return false }
