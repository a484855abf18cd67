package guest

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/regular"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// fileRequest returns the account and the clean path of a request.
func (g *Guest) fileRequest(r *http.Request, name string, raw []byte) (*account.Account, string, error) {
	a, err := g.accounts.Find(rpc.User(r))
	if err != nil {
		return nil, "", err
	}
	if len(raw) > 0 {
		name = string(raw)
	}
	clean, err := cleanPath(name, a)
	return a, clean, err
}

func cleanPath(name string, a *account.Account) (string, error) {
	if name == "" {
		return "", rpc.Errorf(guestapi.CodeInvalidArgument, "no path given")
	}
	if strings.IndexByte(name, 0) >= 0 {
		return "", rpc.Errorf(guestapi.CodeInvalidArgument, "the path has a NUL byte")
	}
	return a.Path(name), nil
}

// entry describes the file at name. It does not follow a symbolic link.
func entry(o *account.Owners, name string) (guestapi.Entry, error) {
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		return guestapi.Entry{}, err
	}
	e := guestapi.Entry{
		Name:         path.Base(name),
		Path:         name,
		Size:         st.Size,
		Mode:         st.Mode & 0o7777,
		Permissions:  permissions(st.Mode),
		Owner:        o.User(st.Uid),
		Group:        o.Group(st.Gid),
		ModifiedTime: time.Unix(st.Mtim.Unix()).UTC(),
		Type:         guestapi.TypeUnspecified,
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		e.Type = guestapi.TypeFile
	case unix.S_IFDIR:
		e.Type = guestapi.TypeDirectory
	case unix.S_IFLNK:
		e.Type = guestapi.TypeSymlink
		// If the link has vanished, the target is empty.
		target, _ := os.Readlink(name)
		e.SymlinkTarget = strings.ToValidUTF8(target, "\uFFFD")
	}
	if !utf8.ValidString(name) {
		e.RawPath = []byte(name)
		e.Name = strings.ToValidUTF8(e.Name, "\uFFFD")
		e.Path = strings.ToValidUTF8(e.Path, "\uFFFD")
	}
	return e, nil
}

// permissions formats a mode as ls -l does.
func permissions(mode uint32) string {
	const rwx = "rwxrwxrwx"
	kind := byte('?')
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		kind = '-'
	case unix.S_IFDIR:
		kind = 'd'
	case unix.S_IFLNK:
		kind = 'l'
	case unix.S_IFIFO:
		kind = 'p'
	case unix.S_IFSOCK:
		kind = 's'
	case unix.S_IFCHR:
		kind = 'c'
	case unix.S_IFBLK:
		kind = 'b'
	}
	b := []byte{kind}
	for i := range rwx {
		if mode&(1<<(8-i)) != 0 {
			b = append(b, rwx[i])
		} else {
			b = append(b, '-')
		}
	}
	special := func(bit uint32, at int, with, without byte) {
		if mode&bit == 0 {
			return
		}
		if b[at] == 'x' {
			b[at] = with
		} else {
			b[at] = without
		}
	}
	special(unix.S_ISUID, 3, 's', 'S')
	special(unix.S_ISGID, 6, 's', 'S')
	special(unix.S_ISVTX, 9, 't', 'T')
	return string(b)
}

func (g *Guest) stat(r *http.Request, in *guestapi.PathRequest) (*guestapi.EntryResponse, error) {
	a, name, err := g.fileRequest(r, in.Path, in.RawPath)
	if err != nil {
		return nil, err
	}
	return g.entryOf(r, a, name)
}

func (g *Guest) entryOf(r *http.Request, a *account.Account, name string) (*guestapi.EntryResponse, error) {
	var out guestapi.EntryResponse
	err := g.accounts.As(a, func() (err error) {
		out.Entry, err = entry(new(account.Owners), name)
		return rpc.FileError(err, name)
	})
	if err != nil {
		return nil, err
	}
	if !rpc.Extended(r) {
		out.Entry.RawPath = nil
	}
	return &out, nil
}

func (g *Guest) makeDir(r *http.Request, in *guestapi.PathRequest) (*guestapi.EntryResponse, error) {
	a, name, err := g.fileRequest(r, in.Path, in.RawPath)
	if err != nil {
		return nil, err
	}
	err = g.accounts.As(a, func() error {
		if err := makeParents(path.Dir(name)); err != nil {
			return err
		}
		err := unix.Mkdir(name, 0o755)
		if err == unix.EEXIST {
			var st unix.Stat_t
			if unix.Stat(name, &st) == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
				return rpc.Errorf(guestapi.CodeInvalidArgument, "%s: exists and is not a directory", name)
			}
		}
		return rpc.FileError(err, name)
	})
	if err != nil {
		return nil, err
	}
	return g.entryOf(r, a, name)
}

// makeParents makes a directory and its missing parents.
func makeParents(dir string) error {
	return rpc.FileError(os.MkdirAll(dir, 0o755), dir)
}

func (g *Guest) move(r *http.Request, in *guestapi.MoveRequest) (*guestapi.EntryResponse, error) {
	a, from, err := g.fileRequest(r, in.Source, in.RawSource)
	if err != nil {
		return nil, err
	}
	_, to, err := g.fileRequest(r, in.Destination, in.RawDestination)
	if err != nil {
		return nil, err
	}
	err = g.accounts.As(a, func() error {
		var st unix.Stat_t
		if err := unix.Lstat(from, &st); err != nil {
			return rpc.FileError(err, from)
		}
		if err := makeParents(path.Dir(to)); err != nil {
			return err
		}
		err := unix.Rename(from, to)
		if err == unix.EXDEV {
			return moveAcross(from, to)
		}
		return rpc.FileError(err, from+" to "+to)
	})
	if err != nil {
		return nil, err
	}
	return g.entryOf(r, a, to)
}

// moveAcross moves to another file system. It copies the source beside the
// destination, renames the copy, and then removes the source.
func moveAcross(from, to string) error {
	temp := tempName(to)
	if err := copyTree(from, temp); err != nil {
		os.RemoveAll(temp)
		return err
	}
	if err := unix.Rename(temp, to); err != nil {
		os.RemoveAll(temp)
		return rpc.FileError(err, to)
	}
	return rpc.FileError(os.RemoveAll(from), from)
}

// copyTree copies a file, link or directory. Other kinds of files cannot be
// moved to another file system.
func copyTree(from, to string) error {
	var st unix.Stat_t
	if err := unix.Lstat(from, &st); err != nil {
		return rpc.FileError(err, from)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		target, err := os.Readlink(from)
		if err != nil {
			return rpc.FileError(err, from)
		}
		return rpc.FileError(os.Symlink(target, to), to)
	case unix.S_IFREG:
		return copyFile(from, to, st.Mode&0o7777)
	case unix.S_IFDIR:
		if err := unix.Mkdir(to, 0o700); err != nil {
			return rpc.FileError(err, to)
		}
		entries, err := os.ReadDir(from)
		if err != nil {
			return rpc.FileError(err, from)
		}
		for _, e := range entries {
			if err := copyTree(path.Join(from, e.Name()), path.Join(to, e.Name())); err != nil {
				return err
			}
		}
		return rpc.FileError(unix.Chmod(to, st.Mode&0o7777), to)
	}
	return rpc.Errorf(guestapi.CodeInvalidArgument, "%s: is of a kind that cannot be moved to another file system", from)
}

func copyFile(from, to string, mode uint32) error {
	src, err := regular.Open(from)
	if err != nil {
		return rpc.FileError(err, from)
	}
	defer src.Close()
	fd, err := regular.OpenAny(to, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return rpc.FileError(err, to)
	}
	dst := os.NewFile(uintptr(fd), to)
	_, err = io.Copy(dst, src)
	err = errors.Join(err, unix.Fchmod(fd, mode), dst.Close())
	return rpc.FileError(err, to)
}

func (g *Guest) remove(r *http.Request, in *guestapi.PathRequest) (*struct{}, error) {
	a, name, err := g.fileRequest(r, in.Path, in.RawPath)
	if err != nil {
		return nil, err
	}
	if name == "/" {
		return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "the root directory cannot be removed")
	}
	err = g.accounts.As(a, func() error {
		var st unix.Stat_t
		if err := unix.Lstat(name, &st); err != nil {
			return rpc.FileError(err, name)
		}
		return rpc.FileError(os.RemoveAll(name), name)
	})
	if err != nil {
		return nil, err
	}
	return &struct{}{}, nil
}

func (g *Guest) listDir(r *http.Request, in *guestapi.ListDirRequest) (*guestapi.ListDirResponse, error) {
	a, name, err := g.fileRequest(r, in.Path, in.RawPath)
	if err != nil {
		return nil, err
	}
	l := &lister{room: maxListBytes}
	err = g.accounts.As(a, func() error { return l.list(name, int(max(in.Depth, 1))) })
	if err != nil {
		return nil, err
	}
	if !rpc.Extended(r) {
		for i := range l.entries {
			l.entries[i].RawPath = nil
		}
		if l.truncated {
			return nil, rpc.Errorf(guestapi.CodeResourceExhausted, "%s: has more than can be listed at once; list a part of it", name)
		}
	}
	return &guestapi.ListDirResponse{Entries: l.entries, Truncated: l.truncated}, nil
}

// maxListBytes bounds the names in a listing, in bytes, so that long names fit
// into one reply, too.
const maxListBytes = 4 << 20

// A lister collects directory entries up to the bounds of a reply.
type lister struct {
	owners    account.Owners
	entries   []guestapi.Entry
	room      int
	truncated bool
}

// list adds the entries of dir and its subdirectories, depth levels deep, in the
// order of their paths.
func (l *lister) list(dir string, depth int) error {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return rpc.FileError(err, dir)
	}
	names, more, err := firstNames(f, guestapi.MaxListEntries-len(l.entries))
	f.Close()
	if err != nil {
		return rpc.FileError(err, dir)
	}
	l.truncated = l.truncated || more
	for _, name := range names {
		full := path.Join(dir, name)
		e, err := entry(&l.owners, full)
		if err != nil {
			continue // it vanished, or its directory may not be searched
		}
		l.room -= 3*len(full) + 2*len(e.SymlinkTarget)
		if len(l.entries) >= guestapi.MaxListEntries || l.room < 0 {
			l.truncated = true
			return nil
		}
		l.entries = append(l.entries, e)
		if e.Type == guestapi.TypeDirectory && depth > 1 {
			err := l.list(full, depth-1)
			// A subdirectory that vanished, or that the user may not list, has
			// no entries.
			if code := guestapi.Code(""); err != nil {
				code = rpc.Wire(err).Code
				if code != guestapi.CodePermissionDenied && code != guestapi.CodeNotFound {
					return err
				}
			}
			if l.truncated {
				return nil
			}
		}
	}
	return nil
}

// firstNames returns the first n names in a directory, in sorted order, and
// whether there are more. It holds about twice [guestapi.MaxListEntries] at
// most.
func firstNames(f *os.File, n int) (names []string, more bool, err error) {
	for {
		batch, err := f.Readdirnames(4096)
		names = append(names, batch...)
		end := errors.Is(err, io.EOF)
		if err != nil && !end {
			return nil, false, err
		}
		if end || len(names) > 2*guestapi.MaxListEntries {
			slices.SortFunc(names, cmp.Compare[string])
			if len(names) > n {
				names, more = names[:max(n, 0)], true
			}
		}
		if end {
			return names, more, nil
		}
	}
}
