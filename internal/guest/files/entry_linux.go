package files

import (
	"os"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

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
