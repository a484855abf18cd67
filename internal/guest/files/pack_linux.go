package files

import (
	"archive/tar"
	"encoding/json"
	"net/http"
	"path"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// pack answers with an archive of selected files.
func (s *Server) pack(w http.ResponseWriter, r *http.Request) {
	order, err := s.packOrder(w, r)
	if err != nil {
		we := rpc.Wire(err)
		status := rpc.Status(we.Code)
		rpc.WriteJSON(w, status, &guestapi.FileError{Code: status, Message: we.Message})
		return
	}
	sendArchive(w, func(l *layerWriter) error { return l.pack(order) })
}

func (s *Server) packOrder(w http.ResponseWriter, r *http.Request) (*guestapi.PackOrder, error) {
	switch {
	case rpc.User(r) != account.RootName:
		return nil, rpc.Errorf(guestapi.CodePermissionDenied, "only root may do this")
	case s.shared:
		return nil, rpc.Errorf(guestapi.CodePermissionDenied, "the root file system is not the sandbox's own")
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
