package files

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// pack answers with an archive of selected files.
func (s *Server) pack(w http.ResponseWriter, r *http.Request) {
	order, err := s.packOrder(w, r)
	if err != nil {
		refuse(w, err)
		return
	}
	sendArchive(w, func(l *layerWriter) error { return l.pack(order) })
}

// packChanged answers with an archive of the files that changed since the guest started.
func (s *Server) packChanged(w http.ResponseWriter, r *http.Request) {
	if err := s.mayPack(r); err != nil {
		refuse(w, err)
		return
	}
	sendArchive(w, func(l *layerWriter) error { return l.changedSince(s.started.Add(-startMargin)) })
}

// refuse answers with an error.
func refuse(w http.ResponseWriter, err error) {
	we := rpc.Wire(err)
	status := rpc.Status(we.Code)
	rpc.WriteJSON(w, status, &guestapi.FileError{Code: status, Message: we.Message})
}

// mayPack refuses a request for the root file system as a whole.
func (s *Server) mayPack(r *http.Request) error {
	switch {
	case rpc.User(r) != account.RootName:
		return rpc.Errorf(guestapi.CodePermissionDenied, "only root may do this")
	case s.shared:
		return rpc.Errorf(guestapi.CodePermissionDenied, "the root file system is not the sandbox's own")
	}
	return nil
}

func (s *Server) packOrder(w http.ResponseWriter, r *http.Request) (*guestapi.PackOrder, error) {
	if err := s.mayPack(r); err != nil {
		return nil, err
	}
	var order guestapi.PackOrder
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, guestapi.MaxPackOrder)).Decode(&order); err != nil {
		return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "read order: %v", err)
	}
	for _, list := range [][]string{order.Trees, order.Files, order.Gone} {
		for _, name := range list {
			if !path.IsAbs(name) || path.Clean(name) != name || name == "/" {
				return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "%q is not the path of a file", name)
			}
		}
	}
	return &order, nil
}

// goneRecord marks an entry of a file that was removed. A name as in a layer could also
// be that of a file of the user.
const goneRecord = "GLOVEBOX.gone"

// namesRecord marks an entry whose content are the names of all files of a directory. A
// zero byte ends each.
const namesRecord = "GLOVEBOX.names"

// pack writes the files of an order.
func (l *layerWriter) pack(order *guestapi.PackOrder) error {
	for _, name := range order.Trees {
		if err := l.single(name); err != nil {
			return err
		}
		if err := walk(name, l.file); err != nil {
			return err
		}
	}
	for _, name := range order.Files {
		if err := l.single(name); err != nil {
			return err
		}
	}
	for _, name := range order.Gone {
		var st unix.Stat_t
		if err := unix.Lstat(name, &st); err == nil {
			continue // it was made again meanwhile
		}
		h := tar.Header{Typeflag: tar.TypeReg, Name: name[1:], PAXRecords: map[string]string{goneRecord: "true"}, Format: tar.FormatPAX}
		if err := l.WriteHeader(&h); err != nil {
			return err
		}
	}
	return nil
}

// startMargin allows for a clock that is set back after the guest's start. A file that
// the image has from this time is packed without need.
const startMargin = time.Minute

// changedSince writes the files of the root file system that changed since then. A program
// cannot set the time of a change. The root is an overlay: a change copies all directories
// above a file to the upper layer, which changes them too. The names in a directory that
// changed tell which files of the image it no longer has.
func (l *layerWriter) changedSince(then time.Time) error {
	write := func(name string, st *unix.Stat_t) error {
		dir := st.Mode&unix.S_IFMT == unix.S_IFDIR
		if time.Unix(st.Ctim.Unix()).Before(then) {
			if dir {
				return fs.SkipDir
			}
			return nil
		}
		if err := l.file(name, st); err != nil || !dir {
			return err
		}
		return l.namesIn(name)
	}
	var st unix.Stat_t
	if err := unix.Lstat("/", &st); err != nil {
		return err
	}
	if err := write("/", &st); errors.Is(err, fs.SkipDir) {
		return nil
	} else if err != nil {
		return err
	}
	return walk("/", write, "/run")
}

// namesIn writes the names of the files in a directory.
func (l *layerWriter) namesIn(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it vanished meanwhile
	}
	if err != nil {
		return err
	}
	var names []byte
	for _, e := range entries {
		names = append(append(names, e.Name()...), 0)
	}
	h := tar.Header{Typeflag: tar.TypeReg, Name: path.Join(".", dir), Size: int64(len(names)), PAXRecords: map[string]string{namesRecord: "true"}, Format: tar.FormatPAX}
	if err := l.WriteHeader(&h); err != nil {
		return err
	}
	_, err = l.Write(names)
	return err
}

// single writes one file, or a directory without its contents. A missing file is left out.
func (l *layerWriter) single(name string) error {
	var st unix.Stat_t
	switch err := unix.Lstat(name, &st); err {
	case nil:
		return l.file(name, &st)
	case unix.ENOENT, unix.ENOTDIR:
		return nil
	default:
		return err
	}
}
