package safepath

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"path"
	"slices"
	"strings"
)

// An Update describes changes to a directory, besides extracting an archive into
// it. Names have the form of [Dir.Walk], and may have any bytes.
type Update struct {
	// Aside are renamed first. It maps current names to new names, which must be
	// free.
	Aside map[string]string
	// Gone are removed. An entry that blocks a name in Placed is removed before
	// the archive is merged, the others afterwards. Directories that are not
	// empty stay.
	Gone []string
	// Placed are the only names that the archive may have.
	Placed []string
	// Plan, unless nil, is called when the archive is complete. It may change
	// Aside and Gone according to the current state of the directory. If it
	// fails, the directory does not change.
	Plan func(*Update) error
	// Room, unless nil, is called before any change. It returns an error if the
	// disk has no room for the update. added and freed are the disk space that
	// the update takes and frees, in bytes.
	Room func(added, freed int64) error
}

// Update extracts a tar archive into d as Extract does, if r is not nil, and
// removes the files in u.Gone. It changes nothing before the archive is complete.
// If a later step fails, the remaining files keep their old state, and no file is
// incomplete.
func (d *Dir) Update(ctx context.Context, r io.Reader, staging *Dir, lim Limits, u Update) (Counts, error) {
	placed := map[string]bool{}
	for _, name := range u.Placed {
		placed[name] = true
	}
	put := func(into *Dir) error {
		if u.Plan != nil {
			if err := u.Plan(&u); err != nil {
				return err
			}
		}
		if err := d.room(ctx, into, &u); err != nil {
			return err
		}
		return d.put(ctx, into, &u, placed)
	}
	if r == nil {
		return Counts{}, put(nil)
	}
	lim.Only = func(name string) bool { return placed[name] }
	return d.unpack(ctx, r, staging, lim, put)
}

// room calls u.Room with the sizes of the unpacked and the replaced files.
func (d *Dir) room(ctx context.Context, into *Dir, u *Update) error {
	if u.Room == nil || into == nil {
		return nil
	}
	var added, freed int64
	err := into.Walk(ctx, math.MaxInt, func(e *Entry) error {
		added += e.Allocated
		return nil
	})
	if err != nil {
		return err
	}
	for _, names := range [][]string{u.Placed, u.Gone} {
		for _, name := range names {
			if fi, err := d.root.Lstat(name); err == nil && u.Aside[name] == "" {
				freed += allocated(fi)
			}
		}
	}
	return u.Room(added, freed)
}

// put applies an Update with the unpacked archive, if there is one.
func (d *Dir) put(ctx context.Context, into *Dir, u *Update, placed map[string]bool) error {
	gone := slices.Sorted(slices.Values(u.Gone))
	slices.Reverse(gone) // the contents of a directory before the directory
	replaced := map[string]bool{}
	for _, name := range gone {
		replaced[name] = placed[name]
	}
	first := func(name string) bool {
		for ; name != "."; name = path.Dir(name) {
			if replaced[name] {
				return true
			}
		}
		return false
	}
	for from, to := range u.Aside {
		if err := d.root.Rename(from, to); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, name := range gone {
		if first(name) {
			if err := d.drop(name); err != nil {
				return err
			}
		}
	}
	if into != nil {
		if err := d.Merge(ctx, into); err != nil {
			return err
		}
	}
	for _, name := range gone {
		if !first(name) {
			if err := d.drop(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// drop removes a file, a link or an empty directory.
func (d *Dir) drop(name string) error {
	err := d.root.Remove(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if fi, serr := d.root.Lstat(name); serr == nil && fi.IsDir() && !errors.Is(err, fs.ErrPermission) {
		return nil // another process has a file in it
	}
	if strings.Contains(name, "/") {
		// A file has replaced its directory.
		if fi, serr := d.root.Lstat(path.Dir(name)); serr == nil && !fi.IsDir() {
			return nil
		}
	}
	return err
}
