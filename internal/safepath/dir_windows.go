package safepath

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"
)

// openNow is nothing here: opening a file does not wait.
const openNow = 0

func ownerOf(fs.FileInfo) (uid, gid int) { return -1, -1 }

// openPath opens a directory from the one above it: what is opened by its whole
// path can be neither renamed nor removed here while it is open.
func openPath(path string) (*os.Root, error) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	above := filepath.Dir(path)
	if above == path {
		return os.OpenRoot(path)
	}
	root, err := os.OpenRoot(above)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.OpenRoot(filepath.Base(path))
}

// moveBetween renames a file of one directory to a name in another. Nothing
// here can rename by open directories, so it goes by their paths, which are
// of this process's own making up to the last part.
func moveBetween(from *os.Root, old string, to *os.Root, name string) error {
	return os.Rename(filepath.Join(from.Name(), old), filepath.Join(to.Name(), name))
}

func removeTree(root *os.Root, name string) error { return root.RemoveAll(name) }

// Walk calls visit with all that is below d, directories before what is in
// them, in no other order. What disappears meanwhile is left out. It ends with
// visit's error, with ctx's, or with one that wraps [ErrLimit] if there are
// more than limit entries or directories are nested deeper than [MaxDepth].
func (d *Dir) Walk(ctx context.Context, limit int, visit func(*Entry) error) error {
	return d.walk(ctx, &limit, ".", 0, visit)
}

func (d *Dir) walk(ctx context.Context, left *int, dir string, depth int, visit func(*Entry) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if depth > MaxDepth {
		return fmt.Errorf("%w: directories are nested deeper than %d", ErrLimit, MaxDepth)
	}
	f, err := d.root.Open(dir)
	if err != nil {
		return err
	}
	names, err := f.Readdirnames(-1)
	f.Close()
	if err != nil {
		return err
	}
	for _, name := range names {
		if *left--; *left < 0 {
			return fmt.Errorf("%w: too many files", ErrLimit)
		}
		name = path.Join(dir, name)
		fi, err := d.root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := visit(&Entry{Path: name, Mode: fi.Mode(), Size: fi.Size(), Allocated: fi.Size(), Modified: fi.ModTime()}); err != nil {
			return err
		}
		if fi.IsDir() {
			if err := d.walk(ctx, left, name, depth+1, visit); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// setTime is not needed here: it would take a path.
func setTime(*os.File, time.Time) error { return nil }

// Version is a text that is different after most changes of a file.
func Version(fi fs.FileInfo) string { return fmt.Sprint(fi.Size(), fi.ModTime().UnixNano()) }

// allocated is what a file takes; nothing for a directory.
func allocated(fi fs.FileInfo) int64 {
	if fi.IsDir() {
		return 0
	}
	return fi.Size()
}
