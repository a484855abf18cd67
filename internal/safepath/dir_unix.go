//go:build unix

package safepath

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// openNow prevents an open from blocking, and a terminal from becoming the
// controlling terminal.
const openNow = unix.O_NONBLOCK | unix.O_NOCTTY

// ownerOf returns the owner of a directory if this process may give files away,
// and -1 otherwise.
func ownerOf(fi fs.FileInfo) (uid, gid int) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return -1, -1
	}
	return int(st.Uid), int(st.Gid)
}

func openPath(path string) (*os.Root, error) { return os.OpenRoot(path) }

// moveBetween renames a file in one directory to a name in another.
func moveBetween(from *os.Root, old string, to *os.Root, name string) error {
	a, err := from.Open(".")
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := to.Open(".")
	if err != nil {
		return err
	}
	defer b.Close()
	if err := unix.Renameat(int(a.Fd()), old, int(b.Fd()), name); err != nil {
		return &os.LinkError{Op: "rename", Old: old, New: name, Err: err}
	}
	return nil
}

const dirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK

// openAt opens a directory in another, and follows no link. If this process owns
// the directory but may not read it, openAt changes its mode first. Otherwise a
// sandbox could hide files in it.
func openAt(dir *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, dirFlags, 0)
	if errors.Is(err, unix.EACCES) {
		if err := makeReadable(dir, name); err != nil {
			return nil, err
		}
		fd, err = unix.Openat(int(dir.Fd()), name, dirFlags, 0)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// removeDepth bounds the directories that removeTree holds open at one time.
const removeDepth = 32

// removeTries bounds the retries of removeTree while other processes add files.
const removeTries = 1000

// removeTree removes name from a directory. It first moves entries that are
// nested too deep up to that directory.
func removeTree(root *os.Root, name string) error {
	top, err := root.Open(".")
	if err != nil {
		return err
	}
	defer top.Close()
	names := []string{name}
	moved := func(dir *os.File, name string) error {
		up := ".removed-" + tempName()
		if err := unix.Renameat(int(dir.Fd()), name, int(top.Fd()), up); err != nil {
			return &os.LinkError{Op: "rename", Old: name, New: up, Err: err}
		}
		names = append(names, up)
		return nil
	}
	for len(names) > 0 {
		name := names[len(names)-1]
		names = names[:len(names)-1]
		if err := removeAt(top, name, 0, moved); err != nil {
			return err
		}
	}
	return nil
}

func removeAt(dir *os.File, name string, depth int, moveUp func(*os.File, string) error) error {
	for range removeTries {
		err := unix.Unlinkat(int(dir.Fd()), name, 0)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
			return &fs.PathError{Op: "remove", Path: name, Err: err}
		}
		if depth == removeDepth {
			return moveUp(dir, name)
		}
		sub, oerr := openAt(dir, name)
		if errors.Is(oerr, unix.ENOTDIR) || errors.Is(oerr, unix.ELOOP) {
			// It is not a directory. If Unlinkat found a directory before, it was
			// replaced meanwhile: retry. Otherwise the error of Unlinkat is
			// right.
			if errors.Is(err, unix.EISDIR) {
				continue
			}
			return &fs.PathError{Op: "remove", Path: name, Err: err}
		}
		if errors.Is(oerr, unix.ENOENT) {
			return nil
		}
		if oerr != nil {
			return oerr
		}
		err = emptyAt(sub, depth+1, moveUp)
		sub.Close()
		if err != nil {
			return err
		}
		err = unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR)
		switch {
		case err == nil || errors.Is(err, unix.ENOENT):
			return nil
		case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST), errors.Is(err, unix.ENOTDIR):
			continue // another process added a file, or replaced the directory
		}
		return &fs.PathError{Op: "remove", Path: name, Err: err}
	}
	return fmt.Errorf("remove %s: other programs keep adding files to it", Show(name))
}

func emptyAt(dir *os.File, depth int, moveUp func(*os.File, string) error) error {
	if fi, err := dir.Stat(); err == nil && fi.Mode()&0o300 != 0o300 {
		_ = dir.Chmod(0o700) // it is removed anyway; if this fails, the next step reports an error
	}
	for {
		names, err := dir.Readdirnames(1000)
		for _, name := range names {
			if err := removeAt(dir, name, depth, moveUp); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Walk calls visit with every file below d, a directory before its contents, in
// no other order. It skips files that disappear meanwhile. If visit returns
// [fs.SkipDir] for a directory, Walk skips its contents. It returns any other error
// of visit, or ctx's error. The error wraps [ErrLimit] if there are more than limit
// entries, or if directories are nested deeper than [MaxDepth]. The Entry is
// valid until visit returns.
func (d *Dir) Walk(ctx context.Context, limit int, visit func(*Entry) error) error {
	top, err := d.root.Open(".")
	if err != nil {
		return err
	}
	defer top.Close()
	w := walker{ctx: ctx, left: limit, visit: visit, seen: map[uint64]bool{}}
	return w.walk(top, "", 0)
}

type walker struct {
	ctx   context.Context
	left  int
	visit func(*Entry) error
	seen  map[uint64]bool // inodes with several names
	entry Entry
}

func (w *walker) walk(dir *os.File, prefix string, depth int) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	if depth > MaxDepth {
		return fmt.Errorf("%w: directories are nested deeper than %d", ErrLimit, MaxDepth)
	}
	fd := int(dir.Fd())
	for {
		names, err := dir.Readdirnames(1000)
		for _, name := range names {
			if w.left--; w.left < 0 {
				return fmt.Errorf("%w: too many files", ErrLimit)
			}
			var st unix.Stat_t
			switch err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); {
			case errors.Is(err, unix.ENOENT):
				continue
			case err != nil:
				return &fs.PathError{Op: "stat", Path: prefix + name, Err: err}
			}
			w.fill(prefix+name, &st)
			isDir := w.entry.Mode.IsDir()
			err := w.visit(&w.entry)
			skip := errors.Is(err, fs.SkipDir)
			if err != nil && !skip {
				return err
			}
			if !isDir || skip {
				continue
			}
			sub, err := openAt(dir, name)
			if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
				continue // the file was replaced meanwhile
			}
			if err != nil {
				return err
			}
			err = w.walk(sub, prefix+name+"/", depth+1)
			sub.Close()
			if err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the directory itself was removed
		}
		if err != nil {
			return err
		}
	}
}

func (w *walker) fill(path string, st *unix.Stat_t) {
	w.entry = Entry{
		Path:      path,
		Mode:      fileMode(uint32(st.Mode)), //nolint:unconvert // elsewhere it has 16 bits
		Size:      st.Size,
		Allocated: st.Blocks * 512,
		Modified:  time.Unix(st.Mtim.Unix()),
		Changed:   time.Unix(st.Ctim.Unix()),
		File:      st.Ino,
	}
	if st.Nlink > 1 && !w.entry.Mode.IsDir() {
		if w.seen[st.Ino] {
			w.entry.Allocated = 0
		}
		w.seen[st.Ino] = true
	}
}

// allocated returns the disk space of a file with one name; zero for a directory.
func allocated(fi fs.FileInfo) int64 {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || fi.IsDir() || st.Nlink > 1 {
		return 0
	}
	return st.Blocks * 512
}

func fileMode(m uint32) fs.FileMode {
	mode := fs.FileMode(m & 0o777)
	switch m & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		mode |= fs.ModeDir
	case unix.S_IFLNK:
		mode |= fs.ModeSymlink
	case unix.S_IFIFO:
		mode |= fs.ModeNamedPipe
	case unix.S_IFSOCK:
		mode |= fs.ModeSocket
	case unix.S_IFCHR:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	default:
		mode |= fs.ModeDevice
	}
	return mode
}

// makeReadable makes a directory that this process's user owns readable. It uses
// an open file descriptor, so a link cannot replace the directory meanwhile.
// Where the system does not support this, it fails.
func makeReadable(dir *os.File, name string) error {
	fd, err := unix.Openat(int(dir.Fd()), name, pathOnly|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	if err := unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), 0o700); err != nil {
		return &fs.PathError{Op: "chmod", Path: name, Err: err}
	}
	return nil
}

// setTime sets the modification time of a file.
func setTime(f *os.File, t time.Time) error {
	ts, err := unix.TimeToTimespec(t)
	if err != nil {
		return nil // the system cannot represent this time
	}
	tv := unix.NsecToTimeval(ts.Nano())
	return os.NewSyscallError("futimes", unix.Futimes(int(f.Fd()), []unix.Timeval{tv, tv}))
}

// Version returns a text that changes with each change of a file, and when
// another file replaces it. Programs cannot restore an earlier value.
func Version(fi fs.FileInfo) string {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Sprint(fi.Size(), fi.ModTime().UnixNano())
	}
	return fmt.Sprint(st.Dev, st.Ino, st.Size, changeTime(st))
}
