package files

import (
	"io"
	"net/http"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/regular"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
)

// previewFile serves GET of PathPreviews.
func (s *Server) previewFile(w http.ResponseWriter, r *http.Request) {
	data, err := s.readPreview(r)
	if err != nil {
		rpc.WriteError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.Write(data)
}

func (s *Server) readPreview(r *http.Request) ([]byte, error) {
	c, err := s.filesUser(r)
	if err != nil {
		return nil, err
	}
	name, err := cleanPath(r.URL.Query().Get("path"), c.Account)
	if err != nil {
		return nil, err
	}
	var f *os.File
	err = s.accounts.As(c.Account, func() (err error) {
		// stat before open: opening some devices has an effect.
		var st unix.Stat_t
		if err := unix.Stat(name, &st); err != nil {
			return rpc.FileError(err, name)
		}
		if err := regular.Check(&st, name); err != nil {
			return err
		}
		f, err = regular.Open(name)
		return rpc.FileError(err, name)
	})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, rpc.FileError(err, name)
	}
	open := func() io.Reader { return io.NewSectionReader(f, 0, info.Size()) }
	data, err := s.preview(r.Context().Done(), c.Account, r.URL.Query().Get("type"), info.Size(), open)
	if err != nil || data != nil {
		return data, err
	}
	data, err = io.ReadAll(open())
	return data, rpc.FileError(err, name)
}
