package files

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// A describer describes files. Without the extensions of E2B's protocol, it
// describes them as E2B's agent does.
type describer struct {
	extended bool
	owners   account.Owners
}

// entry describes the file at name. It does not follow a symbolic link.
func (d *describer) entry(name string) (guestapi.Entry, error) {
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
		Owner:        d.owners.User(st.Uid),
		Group:        d.owners.Group(st.Gid),
		ModifiedTime: time.Unix(st.Mtim.Unix()).UTC(),
		Type:         typeOf(st.Mode),
	}
	if e.Type == guestapi.TypeSymlink {
		// If the link has vanished, the target is empty.
		e.SymlinkTarget, _ = os.Readlink(name)
	}
	if !d.extended {
		asAgent(&e, name)
		e.Metadata = readMetadata(name)
	}
	e.SymlinkTarget = strings.ToValidUTF8(e.SymlinkTarget, "\uFFFD")
	if !utf8.ValidString(name) {
		if d.extended {
			e.RawPath = []byte(name)
		}
		e.Name = strings.ToValidUTF8(e.Name, "\uFFFD")
		e.Path = strings.ToValidUTF8(e.Path, "\uFFFD")
	}
	return e, nil
}

// asAgent changes the entry of the file at name to the form of E2B's agent: a
// link has the type and the mode of its target, and the resolved path as its
// target. A link that leads nowhere has no type, and itself as its target.
func asAgent(e *guestapi.Entry, name string) {
	const permissionBits = 0o777
	e.Mode &= permissionBits
	if e.Type != guestapi.TypeSymlink {
		return
	}
	e.Type, e.Mode, e.SymlinkTarget = guestapi.TypeUnspecified, 0, name
	target, err := filepath.EvalSymlinks(name)
	if err != nil {
		return
	}
	e.SymlinkTarget = target
	var st unix.Stat_t
	if unix.Stat(target, &st) == nil {
		e.Type, e.Mode = typeOf(st.Mode), st.Mode&permissionBits
	}
}

func typeOf(mode uint32) guestapi.FileType {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return guestapi.TypeFile
	case unix.S_IFDIR:
		return guestapi.TypeDirectory
	case unix.S_IFLNK:
		return guestapi.TypeSymlink
	}
	return guestapi.TypeUnspecified
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
