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

// openNoLink is Open for a file that Walk found. The name may have any bytes, and
// must not be a link.
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

// finish sets the owner, mode and time of a new file.
func (d *Dir) finish(f *os.File, mode fs.FileMode, modified time.Time) error {
	if d.uid >= 0 {
		if err := f.Chown(d.uid, d.gid); err != nil {
			return err
		}
	}
	// The owner can always read and write it.
	if err := f.Chmod(mode.Perm() | 0o600); err != nil {
		return err
	}
	if modified.IsZero() {
		return nil
	}
	return setTime(f, modified)
}

// fits reports whether all of from can be merged into d: no directory may meet a
// file of the same name.
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
		return fmt.Errorf("%w: %s is a directory on one side only", ErrType, Show(e.Path))
	})
}

// Merge moves everything in from, a directory of the same file system, into d. It
// replaces existing files and links. If a directory meets a file of the same
// name, it changes nothing, and the error wraps [ErrType].
func (d *Dir) Merge(ctx context.Context, from *Dir) error {
	if err := d.fits(ctx, from); err != nil {
		return err
	}
	return d.merge(from)
}

// merge moves everything in from into d.
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
	// If the directory becomes a link at this moment, the link still leads to a
	// directory below d. With noLinks it is an error.
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

// sub is Sub for an existing name, which may have any bytes.
func (d *Dir) sub(name string) (*Dir, error) {
	root, err := d.open(name)
	if err != nil {
		return nil, err
	}
	return &Dir{root: root, uid: d.uid, gid: d.gid, noLinks: d.noLinks}, nil
}
