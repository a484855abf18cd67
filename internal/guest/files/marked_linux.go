package files

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/procfs"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// A stamp changes whenever a file does. The change time covers every change. The
// other fields are for changes within one tick of the clock.
type stamp struct {
	mode, uid, gid uint32
	size           int64
	modified       unix.Timespec
	changed        unix.Timespec
}

func stampOf(st *unix.Stat_t) stamp {
	return stamp{st.Mode, st.Uid, st.Gid, st.Size, st.Mtim, st.Ctim}
}

// A markedTree is the state of the root file system at the mark, by path.
type markedTree struct {
	mu    sync.Mutex
	files map[string]stamp // nil before the first mark
}

func (m *markedTree) mark() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files = map[string]stamp{}
	err := walkRoot(func(name string, st *unix.Stat_t) error {
		m.files[name] = stampOf(st)
		return nil
	})
	if err != nil {
		m.files = nil
	}
	return err
}

// aboutMachine are files that describe the machine, and so do not belong in an
// image.
var aboutMachine = []string{"/etc/hosts", "/etc/hostname", "/etc/resolv.conf"}

// walkRoot calls f with every file of the root file system, in the order of
// names, a directory before its contents. It skips other mounts and files about
// the machine.
func walkRoot(f func(name string, st *unix.Stat_t) error) error { return walk("/", f) }

// walk is walkRoot for the contents of a directory, without those files. If f returns
// [fs.SkipDir] for a directory, walk leaves out its contents.
func walk(dir string, f func(name string, st *unix.Stat_t) error, without ...string) error {
	mounts, err := procfs.Mounts()
	if err != nil {
		return rpc.Errorf(guestapi.CodeInternal, "read mounts: %v", err)
	}
	skip := map[string]bool{}
	for _, m := range mounts {
		skip[m.Path] = true
	}
	for _, name := range slices.Concat(aboutMachine, without) {
		skip[name] = true
	}
	var walk func(dir string) error
	walk = func(dir string) error {
		entries, err := os.ReadDir(dir) // sorted
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it vanished meanwhile
		}
		if err != nil {
			return rpc.FileError(err, dir)
		}
		for _, e := range entries {
			name := path.Join(dir, e.Name())
			if skip[name] {
				continue
			}
			var st unix.Stat_t
			switch err := unix.Lstat(name, &st); {
			case err == unix.ENOENT:
				continue
			case err != nil:
				return rpc.FileError(err, name)
			}
			if err := f(name, &st); errors.Is(err, fs.SkipDir) {
				continue
			} else if err != nil {
				return err
			}
			if st.Mode&unix.S_IFMT == unix.S_IFDIR {
				if err := walk(name); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return walk(dir)
}
