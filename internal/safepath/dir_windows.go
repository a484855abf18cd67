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

// openNow is zero: opening a file does not block on Windows.
const openNow = 0

func ownerOf(fs.FileInfo) (uid, gid int) { return -1, -1 }

// openPath opens a directory from its parent. Windows can neither rename nor
// remove a directory that was opened by its whole path while it is open.
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

// moveBetween renames a file in one directory to a name in another. Windows
// cannot rename relative to open directories, so it uses paths. This process
// created every part of them except the last.
func moveBetween(from *os.Root, old string, to *os.Root, name string) error {
	return os.Rename(filepath.Join(from.Name(), old), filepath.Join(to.Name(), name))
}

func removeTree(root *os.Root, name string) error { return root.RemoveAll(name) }

// Walk calls visit with every file below d, a directory before its contents, in
// no other order. It skips files that disappear meanwhile. If visit returns
// [fs.SkipDir] for a directory, Walk skips its contents. It returns any other error
// of visit, or ctx's error. The error wraps [ErrLimit] if there are more than limit
// entries, or if directories are nested deeper than [MaxDepth].
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
		err = visit(&Entry{Path: name, Mode: fi.Mode(), Size: fi.Size(), Allocated: fi.Size(), Modified: fi.ModTime()})
		skip := errors.Is(err, fs.SkipDir)
		if err != nil && !skip {
			return err
		}
		if fi.IsDir() && !skip {
			if err := d.walk(ctx, left, name, depth+1, visit); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// setTime does nothing: on Windows it would need a path.
func setTime(*os.File, time.Time) error { return nil }

// Version returns a text that changes with most changes of a file.
func Version(fi fs.FileInfo) string { return fmt.Sprint(fi.Size(), fi.ModTime().UnixNano()) }

// allocated returns the size of a file; zero for a directory.
func allocated(fi fs.FileInfo) int64 {
	if fi.IsDir() {
		return 0
	}
	return fi.Size()
}
