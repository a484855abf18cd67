package changes

import (
	"crypto/sha1" //nolint:gosec // Git names contents so; nothing relies on its strength
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/patch"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// stateAt returns the state of a file or link in a directory, or nil for anything
// else.
func stateAt(dir int, name string) *version {
	var st unix.Stat_t
	if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return nil
	}
	v := &version{size: st.Size, mtime: st.Mtim.Nano(), ctime: st.Ctim.Nano(), ino: st.Ino}
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		v.mode = patch.ModeLink
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil
	case st.Mode&0o100 != 0:
		v.mode = patch.ModeExecutable
	default:
		v.mode = patch.ModeFile
	}
	return v
}

// contentAt returns the contents of a version. It reports false if they are too many,
// cannot be read, or have another size by now.
func contentAt(dir int, name string, v *version) ([]byte, bool) {
	if v.size > sandbox.MaxPatchFile {
		return nil, false
	}
	content := make([]byte, v.size+1)
	if v.mode == patch.ModeLink {
		n, err := unix.Readlinkat(dir, name, content)
		return content[:max(n, 0)], err == nil && int64(n) == v.size
	}
	f, err := openFile(dir, name)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	n, err := io.ReadFull(f, content)
	return content[:n], (err == io.EOF || err == io.ErrUnexpectedEOF) && int64(n) == v.size
}

// openFile opens a regular file in a directory without blocking.
func openFile(dir int, name string) (*os.File, error) {
	fd, err := openAt(dir, name, unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		unix.Close(fd)
		return nil, unix.EINVAL
	}
	_ = unix.SetNonblock(fd, false) // or package os asks for the events of the file
	return os.NewFile(uintptr(fd), name), nil
}

func openAt(dir int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags|unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// openDir opens a directory that is root or below it, through no link.
func openDir(root, dir string) (int, error) {
	fd, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	rel := strings.Trim(strings.TrimPrefix(dir, root), "/")
	if rel == "" {
		return fd, nil
	}
	for part := range strings.SplitSeq(rel, "/") {
		next, err := openAt(fd, part, unix.O_DIRECTORY)
		unix.Close(fd)
		if err != nil {
			return -1, err
		}
		fd = next
	}
	return fd, nil
}

// content returns the contents of a version: those that are kept, or those of the
// file, if they are still the same.
func (t *Tracker) content(name string, v *version) ([]byte, bool) {
	if !v.known {
		return nil, false
	}
	if b, ok := t.contents.get(v.place, v.size); ok {
		return b, true
	}
	if v != t.current[name] {
		return nil, false
	}
	dir, err := openDir(t.rootDir(name), path.Dir(name))
	if err != nil {
		return nil, false
	}
	defer unix.Close(dir)
	b, ok := contentAt(dir, path.Base(name), v)
	return b, ok && blob(b) == v.id
}

// blob returns Git's name of contents.
func blob(content []byte) (id [20]byte) {
	h := sha1.New() //nolint:gosec // see the import
	_, _ = io.WriteString(h, "blob "+strconv.Itoa(len(content))+"\x00")
	_, _ = h.Write(content)
	h.Sum(id[:0])
	return id
}
