package e2b

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// An owner identifies this process to other processes of the same state
// directory, by a file that it keeps locked.
type owner struct {
	dir, name string
	file      *os.File
}

func newOwner(dir string) (*owner, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	o := &owner{dir: dir, name: strings.ToLower(rand.Text())}
	f, err := os.OpenFile(o.path(o.name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := lock(f); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	o.file = f
	return o, nil
}

func (o *owner) path(name string) string { return filepath.Join(o.dir, name) }

var ownerName = regexp.MustCompile(`^[a-z2-7]{26}$`)

// alive reports whether the process of that name is alive. It removes the file
// of a dead process. It returns false for an invalid name.
func (o *owner) alive(name string) bool {
	if name == o.name {
		return true
	}
	if !ownerName.MatchString(name) {
		return false
	}
	f, err := os.OpenFile(o.path(name), os.O_RDWR, 0)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist) // when in doubt, it is alive
	}
	defer f.Close()
	free, err := lock(f)
	if err != nil || !free {
		return true
	}
	_ = os.Remove(f.Name()) // another process may have removed it
	return false
}

// release removes this process's file, so that others see it as ended.
func (o *owner) release() error {
	err := o.file.Close() // first: Windows cannot remove open files
	if rmErr := os.Remove(o.file.Name()); !errors.Is(rmErr, fs.ErrNotExist) {
		err = errors.Join(err, rmErr)
	}
	return err
}
