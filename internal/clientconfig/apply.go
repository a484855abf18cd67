package clientconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/atomicfile"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Apply writes the change by an atomic rename, and follows links. It returns the
// path of the old file's backup, or "" if there was no file or it was removed. If the file has
// changed since Plan, it returns an error of kind Conflict and writes nothing.
func (c Change) Apply(now time.Time) (backup string, err error) {
	if !c.Needed() {
		return "", nil
	}
	path, err := resolve(c.Path)
	if err != nil {
		return "", err
	}
	mode := fs.FileMode(0o600)
	current, err := os.ReadFile(path)
	switch {
	case err == nil:
		info, err := os.Stat(path)
		if err != nil {
			return "", sandbox.Errorf(sandbox.Unavailable, "%w", err)
		}
		mode = info.Mode().Perm()
		if c.Secret {
			mode &= 0o700
		}
	case errors.Is(err, fs.ErrNotExist):
		current = nil
	default:
		return "", sandbox.Errorf(sandbox.Unavailable, "%w", err)
	}
	if (current == nil) != (c.Before == nil) || !bytes.Equal(current, c.Before) {
		return "", sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "another program changed %s at the same time", c.Path), "try again")
	}
	if c.After == nil {
		return "", nil
	}
	if c.Removes {
		if err := os.Remove(path); err != nil {
			return "", sandbox.Errorf(sandbox.Unavailable, "%w", err)
		}
		return "", nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", sandbox.Errorf(sandbox.Unavailable, "%w", err)
	}
	if current != nil {
		if backup, err = keep(path, current, mode, now); err != nil {
			return "", err
		}
	}
	return backup, replace(path, c.After, mode)
}

// Backups returns the paths of the existing backups of the file, the oldest
// first.
func (c Change) Backups() ([]string, error) {
	path, err := resolve(c.Path)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Unavailable, "%w", err)
	}
	var all []string
	for _, e := range entries {
		if rest, ok := strings.CutPrefix(e.Name(), filepath.Base(path)+"."); ok && backupName.MatchString(rest) {
			all = append(all, filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
	return all, nil
}

// Backups returns the backups of the client's file. There are none if
// [Client.PlanRemoval] fails, which returns the reason.
func (c Client) Backups(env Environment, scope Scope, name string) ([]string, error) {
	if c.ByHand() {
		return nil, nil
	}
	change, err := c.PlanRemoval(env, scope, name)
	if err != nil {
		return nil, nil
	}
	return change.Backups()
}

// RemoveBackups removes the files that Backups returns, and calls removed with the
// path of each.
func (c Client) RemoveBackups(env Environment, scope Scope, name string, removed func(string)) error {
	backups, err := c.Backups(env, scope, name)
	errs := []error{err}
	for _, path := range backups {
		if err := os.Remove(path); err != nil {
			errs = append(errs, sandbox.Errorf(sandbox.Unavailable, "%w", err))
			continue
		}
		removed(path)
	}
	return errors.Join(errs...)
}

// backupName matches the suffix that keep adds to the name of a file.
var backupName = regexp.MustCompile(`^\d{8}-\d{6}(-\d+)?\.bak$`)

// keep writes a backup of a file beside it, with the time in its name.
func keep(path string, data []byte, mode fs.FileMode, now time.Time) (string, error) {
	stem := fmt.Sprintf("%s.%s", path, now.Format("20060102-150405"))
	for i := range 100 {
		name := stem + ".bak"
		if i > 0 {
			name = fmt.Sprintf("%s-%d.bak", stem, i)
		}
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", sandbox.Errorf(sandbox.Unavailable, "keep a copy: %w", err)
		}
		if err := finish(f, data); err != nil {
			return "", errors.Join(sandbox.Errorf(sandbox.Unavailable, "keep a copy: %w", err), os.Remove(name))
		}
		return name, nil
	}
	return "", sandbox.Errorf(sandbox.Unavailable, "keep a copy: there are already 100 copies of %s", stem)
}

// replace replaces the file path by an atomic rename. On failure, the file keeps
// its old content.
func replace(path string, data []byte, mode fs.FileMode) error {
	if err := atomicfile.ReplaceDurably(path, data, mode); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "write %s: %w", path, err)
	}
	return nil
}

// finish writes data to f, syncs it to disk, and closes f.
func finish(f *os.File, data []byte) error {
	_, err := f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
