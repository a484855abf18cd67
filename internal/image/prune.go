package image

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// keepFor is how long files without an image are kept. A later pull may continue
// them.
const keepFor = 24 * time.Hour

// tidyTime is how long automatic housekeeping waits for other users of the store.
const tidyTime = 2 * time.Second

// PruneOptions select the images to remove. Files without an image are always
// removed.
type PruneOptions struct {
	// Unused removes images from which no sandbox was made for this long; zero
	// removes none. Images that did not come from a registry stay.
	Unused time.Duration
	// All removes every image, including images that did not come from a
	// registry.
	All bool
}

// Prune removes images, and files without an image. It returns the images' names
// and the number of bytes that it freed. Running sandboxes continue. The space
// that they use is freed when they end. The error is of kind Conflict if ctx's
// deadline passes while the store is in use.
func (s *Store) Prune(ctx context.Context, opts PruneOptions) (names []string, freed int64, err error) {
	now := time.Now()
	err = s.exclusive(ctx, func() error {
		images, err := s.ranked()
		if err != nil {
			return err
		}
		for _, i := range images {
			if opts.All || opts.Unused > 0 && !i.Local && now.Sub(i.Used) >= opts.Unused {
				names = append(names, i.full)
			}
		}
		if err := s.forget(ctx, names); err != nil {
			return err
		}
		freed, err = s.collect(now)
		return err
	})
	for n := range names {
		names[n] = familiar(names[n])
	}
	return names, freed, sandbox.Wrap(err, "prune images", "")
}

// Remove removes an image by one of the names that [Store.Image] accepts. It
// returns the number of bytes that it freed. Parts that other images share stay.
func (s *Store) Remove(ctx context.Context, ref string) (freed int64, err error) {
	err = s.exclusive(ctx, func() error {
		name, r, err := s.find(ref)
		if err != nil {
			return err
		}
		if err := s.forget(ctx, []string{name}); err != nil {
			return err
		}
		freed, err = s.drop(r)
		return err
	})
	return freed, sandbox.Wrap(err, "remove image", ref)
}

// exclusive runs f while no other process or call uses the store. The error is of
// kind Conflict if ctx's deadline passes first.
func (s *Store) exclusive(ctx context.Context, f func() error) error {
	unlock, err := s.lock(ctx, storeLock, true, nil)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return sandbox.Errorf(sandbox.Conflict, "an image is being fetched: %w", err)
		}
		return err
	}
	defer unlock()
	return f()
}

func (s *Store) forget(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	return s.change(ctx, func(x *index) {
		for _, n := range names {
			delete(x.Images, n)
		}
	})
}

// A rankedImage is an image with its full name.
type rankedImage struct {
	sandbox.Image
	full   string
	record *record
}

// ranked returns the images, the least recently used first.
func (s *Store) ranked() ([]rankedImage, error) {
	x, err := s.index()
	if err != nil {
		return nil, err
	}
	var list []rankedImage
	for name, r := range x.Images {
		i, err := s.describe(name, r)
		if err != nil {
			i = sandbox.Image{Used: r.Since, Local: r.Local} // broken: removable
		}
		list = append(list, rankedImage{i, name, r})
	}
	slices.SortFunc(list, func(a, b rankedImage) int { return a.Used.Compare(b.Used) })
	return list, nil
}

// files returns the paths of the store's files of some images.
func (s *Store) files(records ...*record) map[string]bool {
	has := map[string]bool{}
	for _, r := range records {
		has[s.rootPath(r)] = true
		blobs := []v1.Hash{r.Manifest, r.Config}
		for _, l := range r.Layers {
			blobs = append(blobs, l.Blob)
		}
		for _, h := range blobs {
			if h.Hex != "" { // empty if it is not known yet
				has[s.blobPath(h)] = true
			}
		}
	}
	return has
}

// needed returns the files of all images.
func (s *Store) needed() (map[string]bool, error) {
	x, err := s.index()
	if err != nil {
		return nil, err
	}
	var all []*record
	for _, r := range x.Images {
		all = append(all, r)
	}
	return s.files(all...), nil
}

// drop removes the files that only r needs. The caller has exclusive access to
// the store.
func (s *Store) drop(r *record) (freed int64, err error) {
	needed, err := s.needed()
	if err != nil {
		return 0, err
	}
	for path := range s.files(r) {
		if !needed[path] {
			freed += remove(path)
		}
	}
	return freed, nil
}

// collect removes files without an image that were not changed after before. The
// caller has exclusive access to the store.
func (s *Store) collect(before time.Time) (freed int64, err error) {
	needed, err := s.needed()
	if err != nil {
		return 0, err
	}
	for _, dir := range []string{blobsDir, partialDir, rootsDir, locksDir} {
		entries, err := os.ReadDir(s.path(dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return freed, err
		}
		for _, e := range entries {
			path := s.path(dir, e.Name())
			fi, err := e.Info()
			if err != nil || needed[path] || fi.ModTime().After(before) {
				continue
			}
			if dir != locksDir {
				freed += remove(path)
				continue
			}
			if e.Name() == storeLock {
				continue
			}
			// Remove a lock file that a killed process left, if the lock is free.
			if f, err := tryLock(path, true); err == nil && f != nil {
				remove(path)
				f.Close()
			}
		}
	}
	return freed, nil
}

// remove removes a file and returns the space that it freed, or zero if it could
// not be removed.
func remove(path string) int64 {
	fi, err := os.Lstat(path)
	if err != nil || os.Remove(path) != nil {
		return 0
	}
	return diskSize(fi)
}

// Size returns the disk space that the store takes, in bytes.
func (s *Store) Size() (int64, error) {
	total := int64(0)
	for _, dir := range []string{blobsDir, partialDir, rootsDir} {
		entries, err := os.ReadDir(s.path(dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
		for _, e := range entries {
			if fi, err := e.Info(); err == nil {
				total += diskSize(fi)
			}
		}
	}
	return total, nil
}

// tidy removes old files without an image, and then enforces MaxBytes, except on
// the image spare. If the store is in use, it does nothing, because the last user
// runs tidy again.
func (s *Store) tidy(spare string) {
	ctx, cancel := context.WithTimeout(context.Background(), tidyTime)
	defer cancel()
	err := s.exclusive(ctx, func() error {
		if _, err := s.collect(time.Now().Add(-keepFor)); err != nil {
			return err
		}
		return s.bound(ctx, spare)
	})
	if err != nil && !errors.Is(err, sandbox.Conflict) {
		s.opts.Log.Warn("remove unused images", "error", err)
	}
}

// bound removes images until the store is below MaxBytes. It keeps images that
// cannot be fetched again.
func (s *Store) bound(ctx context.Context, spare string) error {
	size, err := s.Size()
	if s.opts.MaxBytes == 0 || size <= s.opts.MaxBytes || err != nil {
		return err
	}
	images, err := s.ranked()
	if err != nil {
		return err
	}
	for _, i := range images {
		if i.Local || i.full == spare {
			continue
		}
		if err := s.forget(ctx, []string{i.full}); err != nil {
			return err
		}
		freed, err := s.drop(i.record)
		if err != nil {
			return err
		}
		s.opts.Log.Info("removed an image to free space", "image", i.Name, "freed", freed)
		if size -= freed; size <= s.opts.MaxBytes {
			return nil
		}
	}
	s.opts.Log.Warn("images take more space than allowed", "size", size, "bound", s.opts.MaxBytes)
	return nil
}

// abandon removes the parts of an image that could not be completed, unless
// another process uses the store.
func (s *Store) abandon(r *record) error {
	if r == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), tidyTime)
	defer cancel()
	err := s.exclusive(ctx, func() error {
		for _, l := range r.Layers {
			remove(s.path(partialDir, l.Blob.Hex))
		}
		_, err := s.drop(r)
		return err
	})
	if errors.Is(err, sandbox.Conflict) {
		return nil // a later tidy or Prune removes them
	}
	return err
}
