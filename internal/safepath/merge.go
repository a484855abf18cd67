package safepath

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"time"
)

// openNoLink is Open of a file that Walk found: its name as it is, whatever
// bytes it has, and no link.
func (d *Dir) openNoLink(name string) (*os.File, fs.FileInfo, error) {
	was, err := d.root.Lstat(name)
	if err != nil {
		return nil, nil, err
	}
	if err := mustBeRegular(name, was); err != nil {
		return nil, nil, err
	}
	f, err := d.root.OpenFile(name, os.O_RDONLY|openNow, 0)
	if err != nil {
		return nil, nil, err
	}
	fi, err := f.Stat()
	if err == nil {
		err = mustBeRegular(name, fi)
	}
	if err == nil && !os.SameFile(was, fi) {
		err = fmt.Errorf("%w: %s was replaced", ErrType, Show(name))
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, fi, nil
}

// finish gives a new file its owner, mode and time.
func (d *Dir) finish(f *os.File, mode fs.FileMode, modified time.Time) error {
	if d.uid >= 0 {
		if err := f.Chown(d.uid, d.gid); err != nil {
			return err
		}
	}
	// Whoever owns it can always read it.
	if err := f.Chmod(mode.Perm() | 0o600); err != nil {
		return err
	}
	if modified.IsZero() {
		return nil
	}
	return setTime(f, modified)
}

// fits reports whether all of from can be put into d: files where there are no
// directories, and directories where there is nothing else.
func (d *Dir) fits(ctx context.Context, from *Dir) error {
	return from.Walk(ctx, math.MaxInt, func(e *Entry) error {
		fi, err := d.root.Lstat(e.Path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case fi.IsDir() == e.Mode.IsDir():
			return nil
		}
		return fmt.Errorf("%w: %s is a directory on one side and none on the other", ErrType, Show(e.Path))
	})
}

// Merge moves all that is in from, a directory of the same file system, into d.
// Files and links that are there are replaced. It touches nothing, and its error
// wraps [ErrType], if a directory would have to replace something else, or
// something else a directory.
func (d *Dir) Merge(ctx context.Context, from *Dir) error {
	if err := d.fits(ctx, from); err != nil {
		return err
	}
	return d.merge(from)
}

// merge moves all that is in from into d.
func (d *Dir) merge(from *Dir) error {
	f, err := from.root.Open(".")
	if err != nil {
		return err
	}
	names, err := f.Readdirnames(-1)
	f.Close()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := d.mergeOne(from, name); err != nil {
			return err
		}
	}
	return nil
}

func (d *Dir) mergeOne(from *Dir, name string) error {
	fi, err := from.root.Lstat(name)
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return moveBetween(from.root, name, d.root, name)
	}
	was, err := d.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return moveBetween(from.root, name, d.root, name)
	}
	if err != nil {
		return err
	}
	if !was.IsDir() {
		return fmt.Errorf("%w: %s is not a directory", ErrType, Show(name))
	}
	// If it becomes a link in this moment, that leads somewhere below d all the
	// same; with noLinks it is an error.
	a, err := from.sub(name)
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := d.sub(name)
	if err != nil {
		return err
	}
	defer b.Close()
	if err := b.merge(a); err != nil {
		return fmt.Errorf("in %s: %w", Show(path.Clean(name)), err)
	}
	return nil
}

// sub is Sub of a name that is there, whatever bytes it has.
func (d *Dir) sub(name string) (*Dir, error) {
	root, err := d.open(name)
	if err != nil {
		return nil, err
	}
	return &Dir{root: root, uid: d.uid, gid: d.gid, noLinks: d.noLinks}, nil
}
