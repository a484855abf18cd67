package files

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// unpack unpacks an archive as root.
func (s *Server) unpack(r *http.Request) error {
	q := r.URL.Query()
	dir := path.Clean(q.Get("path"))
	if !path.IsAbs(dir) {
		return rpc.Errorf(guestapi.CodeInvalidArgument, "path: %q is not absolute", dir)
	}
	u := unpacker{restore: q.Get("restore") != ""}
	if says := q.Get("owner"); says != "" {
		a, err := account.Parse(says)
		if err != nil {
			return rpc.Errorf(guestapi.CodeInvalidArgument, "%v", err)
		}
		u.uid, u.gid = int(a.UID), int(a.GID)
		if _, group, _ := strings.Cut(says, ":"); group == "" && a.Home == "" {
			u.gid = u.uid // a number that is not in /etc/passwd
		}
	}
	name := "" // the new name of the only file
	if q.Get("file") != "" {
		if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
			dir, name = path.Dir(dir), path.Base(dir)
		}
	}
	if err := makeDirs(dir, u.own); err != nil {
		return rpc.FileError(err, dir)
	}
	archive := tar.NewReader(r.Body)
	for {
		h, err := archive.Next()
		if err == io.EOF {
			return u.end()
		}
		if err != nil {
			return rpc.Errorf(guestapi.CodeInvalidArgument, "read archive: %v", err)
		}
		as := path.Clean("/" + h.Name)
		if name != "" {
			as = name
		}
		unpack := u.entry
		if u.restore {
			unpack = u.restored
		}
		if err := unpack(path.Join(dir, as), h, archive); err != nil {
			return rpc.FileError(err, h.Name)
		}
	}
}

// An unpacker makes files that belong to an owner.
type unpacker struct {
	uid, gid int

	restore bool // each file has the owner that the archive names
	dirs    []*tar.Header
}

func (u *unpacker) own(name string) error { return os.Lchown(name, u.uid, u.gid) }

// entry unpacks one file of an archive.
func (u *unpacker) entry(name string, h *tar.Header, data io.Reader) error {
	if err := makeDirs(path.Dir(name), u.own); err != nil {
		return err
	}
	mode := uint32(h.Mode & 0o7777)
	if h.Typeflag == tar.TypeDir {
		if fi, err := os.Stat(name); err == nil && fi.IsDir() {
			return nil
		}
		if err := os.Mkdir(name, 0o755); err != nil {
			return err
		}
		return errors.Join(u.own(name), unix.Chmod(name, mode))
	}
	if err := unix.Unlink(name); err != nil && err != unix.ENOENT {
		return &fs.PathError{Op: "replace", Path: name, Err: err}
	}
	switch h.Typeflag {
	case tar.TypeReg:
	case tar.TypeSymlink:
		if err := os.Symlink(h.Linkname, name); err != nil {
			return err
		}
		return u.own(name)
	default:
		return fmt.Errorf("is of a kind, %q, that is not unpacked", h.Typeflag)
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	buf := copyPool.Get().(*[copySize]byte)
	defer copyPool.Put(buf)
	_, err = io.CopyBuffer(struct{ io.Writer }{f}, data, buf[:])
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	// The order matters: a change of owner clears set-id bits.
	return errors.Join(u.own(name), unix.Chmod(name, mode), os.Chtimes(name, h.ModTime, h.ModTime))
}
