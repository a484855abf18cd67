package guest

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/procfs"
	"github.com/glovebox-dev/glovebox/internal/guest/regular"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// layer serves the root file system as a whole. POST marks its state, GET
// answers with the changes since the mark, PUT unpacks an archive.
func (g *Guest) layer(w http.ResponseWriter, r *http.Request) {
	var err error
	switch {
	case rpc.User(r) != account.RootName:
		err = rpc.Errorf(guestapi.CodePermissionDenied, "only root may do this")
	case g.cfg.WorkDir != "":
		err = rpc.Errorf(guestapi.CodePermissionDenied, "the root file system is not the sandbox's own")
	default:
		switch r.Method {
		case http.MethodPost:
			err = g.marked.mark()
		case http.MethodGet:
			err = g.sendLayer(w)
		case http.MethodPut:
			err = g.unpack(r)
		default:
			err = rpc.Errorf(guestapi.CodeInvalidArgument, "POST, GET and PUT are what can be done")
		}
	}
	if err != nil {
		we := rpc.Wire(err)
		status := rpc.Status(we.Code)
		rpc.WriteJSON(w, status, &guestapi.FileError{Code: status, Message: we.Message})
	}
}

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
func walkRoot(f func(name string, st *unix.Stat_t) error) error {
	mounts, err := procfs.Mounts()
	if err != nil {
		return rpc.Errorf(guestapi.CodeInternal, "read mounts: %v", err)
	}
	skip := map[string]bool{}
	for _, m := range mounts {
		skip[m.Path] = true
	}
	for _, name := range aboutMachine {
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
			if err := f(name, &st); err != nil {
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
	return walk("/")
}

// sendLayer answers with the changes since the mark.
func (g *Guest) sendLayer(w http.ResponseWriter) error {
	m := &g.marked
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.files == nil {
		return rpc.Errorf(guestapi.CodeFailedPrecondition, "nothing was marked")
	}
	w.Header().Set("Content-Type", "application/x-tar")
	out := bufio.NewWriterSize(w, copySize)
	l := layerWriter{Writer: tar.NewWriter(out), names: map[[2]uint64]string{}}
	err := l.changes(m.files)
	if err == nil {
		err = errors.Join(l.Close(), out.Flush())
	}
	if err != nil {
		// The answer has begun, so only aborting it reports the error.
		panic(http.ErrAbortHandler)
	}
	return nil
}

// A layerWriter writes a layer in OCI's form.
type layerWriter struct {
	*tar.Writer
	names map[[2]uint64]string // of files with several hard links, by device and inode
}

// changes writes the differences between the root file system and was.
func (l *layerWriter) changes(was map[string]stamp) error {
	seen := make(map[string]bool, len(was))
	err := walkRoot(func(name string, st *unix.Stat_t) error {
		before, there := was[name]
		if there {
			seen[name] = true
			if before == stampOf(st) {
				return nil
			}
		}
		return l.file(name, st)
	})
	if err != nil {
		return err
	}
	var gone []string
	for name := range was {
		if !seen[name] {
			gone = append(gone, name)
		}
	}
	slices.Sort(gone)
	for _, name := range gone {
		dir, base := path.Split(name)
		if parent := path.Clean(dir); parent != "/" && !seen[parent] {
			continue // the whiteout of the parent covers it
		}
		var st unix.Stat_t
		if unix.Lstat(path.Clean(dir), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
			continue // the entry of the file that replaced the directory covers it
		}
		if err := l.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: dir[1:] + ".wh." + base}); err != nil {
			return err
		}
	}
	return nil
}

// file writes one file.
func (l *layerWriter) file(name string, st *unix.Stat_t) error {
	h := &tar.Header{
		Name: name[1:], Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid),
		ModTime: time.Unix(st.Mtim.Unix()), Format: tar.FormatPAX,
	}
	kind := st.Mode & unix.S_IFMT
	switch kind {
	case unix.S_IFDIR:
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
	case unix.S_IFLNK:
		target, err := os.Readlink(name)
		if err != nil {
			return err
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, target
	case unix.S_IFIFO:
		h.Typeflag = tar.TypeFifo
	case unix.S_IFREG:
		h.Typeflag, h.Size = tar.TypeReg, st.Size
	default:
		return nil // sockets and devices do not belong in an image
	}
	if st.Nlink > 1 && kind != unix.S_IFDIR {
		id := [2]uint64{st.Dev, st.Ino}
		if first, ok := l.names[id]; ok {
			h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
			return l.WriteHeader(h)
		}
		l.names[id] = h.Name
	}
	if err := l.WriteHeader(h); err != nil || h.Size == 0 {
		return err
	}
	f, err := regular.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	buf := copyPool.Get().(*[copySize]byte)
	defer copyPool.Put(buf)
	// If the file became shorter meanwhile, the next header or Close fails.
	_, err = io.CopyBuffer(struct{ io.Writer }{l.Writer}, struct{ io.Reader }{io.LimitReader(f, h.Size)}, buf[:])
	return err
}

// unpack unpacks an archive as root.
func (g *Guest) unpack(r *http.Request) error {
	q := r.URL.Query()
	dir := path.Clean(q.Get("path"))
	if !path.IsAbs(dir) {
		return rpc.Errorf(guestapi.CodeInvalidArgument, "path: %q is not absolute", dir)
	}
	u := unpacker{}
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
			dir, name = path.Split(dir)
		}
	}
	if err := u.makeDir(dir); err != nil {
		return rpc.FileError(err, dir)
	}
	archive := tar.NewReader(r.Body)
	for {
		h, err := archive.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return rpc.Errorf(guestapi.CodeInvalidArgument, "read archive: %v", err)
		}
		as := path.Clean("/" + h.Name)
		if name != "" {
			as = name
		}
		if err := u.entry(path.Join(dir, as), h, archive); err != nil {
			return rpc.FileError(err, h.Name)
		}
	}
}

// An unpacker makes files that belong to an owner.
type unpacker struct{ uid, gid int }

// makeDir makes a directory and its missing parents.
func (u *unpacker) makeDir(dir string) error {
	fi, err := os.Stat(dir)
	if err == nil {
		if !fi.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: dir, Err: unix.ENOTDIR}
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := u.makeDir(path.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return os.Lchown(dir, u.uid, u.gid)
}

// entry unpacks one file of an archive.
func (u *unpacker) entry(name string, h *tar.Header, data io.Reader) error {
	if err := u.makeDir(path.Dir(name)); err != nil {
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
		return errors.Join(os.Lchown(name, u.uid, u.gid), unix.Chmod(name, mode))
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
		return os.Lchown(name, u.uid, u.gid)
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
	return errors.Join(os.Lchown(name, u.uid, u.gid), unix.Chmod(name, mode), os.Chtimes(name, h.ModTime, h.ModTime))
}
