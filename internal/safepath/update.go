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

// An Update says what is done to a directory besides taking an archive out into
// it. Its names are as [Dir.Walk] gives them, whatever bytes they have.
type Update struct {
	// Aside are renamed first, from what they are called to what they are to
	// be called, which nothing is.
	Aside map[string]string
	// Gone are removed: before, if they are in the way of what is in Placed,
	// else behind. A directory that is not empty stays.
	Gone []string
	// Placed are what the archive has, which may have nothing else.
	Placed []string
	// Plan, unless it is nil, is called when all of the archive is here, and may
	// change Aside and Gone as it finds the directory then. Nothing was touched
	// if it fails.
	Plan func(*Update) error
	// Room, unless it is nil, is asked before anything is touched whether there
	// is room for so many bytes when so many are freed, as they take it.
	Room func(added, freed int64) error
}

// Update takes a tar archive out into d as Extract does, if r is not nil, and
// removes what is gone. Nothing is touched before all of the archive is here. If
// it fails later, what was not yet done is as it was, and each file is whole.
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

// room asks u whether there is room for what was unpacked.
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

// put does what an Update says with what was unpacked, if anything was.
func (d *Dir) put(ctx context.Context, into *Dir, u *Update, placed map[string]bool) error {
	gone := slices.Sorted(slices.Values(u.Gone))
	slices.Reverse(gone) // what is in a directory before that
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

// drop removes a file, a link or a directory that is empty.
func (d *Dir) drop(name string) error {
	err := d.root.Remove(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if fi, serr := d.root.Lstat(name); serr == nil && fi.IsDir() && !errors.Is(err, fs.ErrPermission) {
		return nil // somebody else has something in it
	}
	if strings.Contains(name, "/") {
		// What it was in is no directory any more.
		if fi, serr := d.root.Lstat(path.Dir(name)); serr == nil && !fi.IsDir() {
			return nil
		}
	}
	return err
}
