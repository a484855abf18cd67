package workspace

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/windows"
)

// staleAfter is the age after which a process's directory is removed. Windows has
// no lock that shows whether the process is alive.
const staleAfter = 7 * 24 * time.Hour

func makeLocked(dir string) (path string, unlock func(), err error) {
	path = filepath.Join(dir, rand.Text())
	return path, func() {}, os.Mkdir(path, 0o700)
}

func (s *Set) removeStale() error {
	tmp := filepath.Join(s.path, "tmp")
	entries, err := os.ReadDir(tmp)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if fi, err := e.Info(); err == nil && time.Since(fi.ModTime()) > staleAfter {
			if err := os.RemoveAll(filepath.Join(tmp, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func isBadLink(err error) bool {
	var p *fs.PathError
	return errors.As(err, &p) && p.Err.Error() == "path escapes from parent"
}

// isBadName reports whether err means that the system does not allow the name.
func isBadName(err error) bool { return errors.Is(err, windows.ERROR_INVALID_NAME) }
