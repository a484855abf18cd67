package files

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/procfs"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// restored unpacks one file of an archive of packed files.
func (u *unpacker) restored(name string, h *tar.Header, data io.Reader) error {
	if h.PAXRecords[goneRecord] != "" {
		return os.RemoveAll(name)
	}
	if h.PAXRecords[namesRecord] != "" {
		return keepOnly(name, data)
	}
	u.uid, u.gid = h.Uid, h.Gid
	if fi, err := os.Lstat(name); err == nil && (h.Typeflag != tar.TypeDir || !fi.IsDir()) {
		if err := os.RemoveAll(name); err != nil {
			return err
		}
	}
	if err := makeDirs(path.Dir(name), u.own); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if err := unix.Mkdir(name, 0o755); err != nil && err != unix.EEXIST {
			return err
		}
		u.dirs = append(u.dirs, h)
	case tar.TypeLink:
		return os.Link(path.Clean("/"+h.Linkname), name)
	case tar.TypeSymlink:
		if err := os.Symlink(h.Linkname, name); err != nil {
			return err
		}
		return errors.Join(u.own(name), setTime(name, h.ModTime))
	case tar.TypeFifo:
		if err := unix.Mkfifo(name, 0o600); err != nil {
			return err
		}
	default:
		if err := writeSparse(name, data, h.Size); err != nil {
			return err
		}
	}
	// The order matters: a change of owner clears set-id bits.
	return errors.Join(u.own(name), setMode(name, uint32(h.Mode&0o7777)), setTime(name, h.ModTime))
}

// keepOnly removes the files of a directory that are not in a list of names, except mounts
// and directories that have some below them.
func keepOnly(dir string, list io.Reader) error {
	text, err := io.ReadAll(list)
	if err != nil {
		return err
	}
	keep := map[string]bool{}
	for name := range strings.SplitSeq(string(text), "\x00") {
		keep[name] = true
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	mounts, err := procfs.Mounts()
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		mounted := func(m guestapi.Mount) bool { return m.Path == name || strings.HasPrefix(m.Path, name+"/") }
		if keep[e.Name()] || slices.ContainsFunc(mounts, mounted) {
			continue
		}
		if err := os.RemoveAll(name); err != nil {
			return err
		}
	}
	return nil
}

// setMode sets the permissions of a file. Some boxes refuse set-id bits, which only files
// of the image have there.
func setMode(name string, mode uint32) error {
	const setID = unix.S_ISUID | unix.S_ISGID
	err := unix.Chmod(name, mode)
	if err == unix.EPERM && mode&setID != 0 {
		err = unix.Chmod(name, mode&^setID)
	}
	return os.NewSyscallError("chmod", err)
}

// end gives directories their times, which changed when files were made in them.
func (u *unpacker) end() error {
	for _, h := range u.dirs {
		if err := setTime(path.Clean("/"+h.Name), h.ModTime); err != nil {
			return err
		}
	}
	return nil
}

func setTime(name string, t time.Time) error {
	at := unix.NsecToTimespec(t.UnixNano())
	return os.NewSyscallError("utimensat", unix.UtimesNanoAt(unix.AT_FDCWD, name, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW))
}

// writeSparse makes a file of size bytes. It writes no blocks of zeros, because the
// archive has those of holes.
func writeSparse(name string, data io.Reader, size int64) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = copySparse(f, data, size)
	if err == nil {
		err = f.Truncate(size)
	}
	return errors.Join(err, f.Close())
}

func copySparse(f *os.File, data io.Reader, size int64) error {
	buf := copyPool.Get().(*[copySize]byte)
	defer copyPool.Put(buf)
	for at := int64(0); at < size; {
		part := buf[:min(size-at, copySize)]
		if _, err := io.ReadFull(data, part); err != nil {
			return err
		}
		for rest := part; len(rest) > 0; {
			hole, n := run(rest)
			if !hole {
				if _, err := f.WriteAt(rest[:n], at); err != nil {
					return err
				}
			}
			rest, at = rest[n:], at+int64(n)
		}
	}
	return nil
}

var zeros [4096]byte

// run returns the length of the blocks at the beginning of b that are all zeros, or that
// all are not.
func run(b []byte) (hole bool, n int) {
	isHole := func(b []byte) bool {
		block := b[:min(len(b), len(zeros))]
		return bytes.Equal(block, zeros[:len(block)])
	}
	hole = isHole(b)
	for n < len(b) && isHole(b[n:]) == hole {
		n = min(n+len(zeros), len(b))
	}
	return hole, n
}
