package files

import (
	"bytes"
	"io"
	"net/http"
	"os"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/regular"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// contents serves file contents: GET and HEAD read, POST and PUT write.
func (s *Server) contents(w http.ResponseWriter, r *http.Request) {
	var err error
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		err = s.download(w, r)
	case http.MethodPost, http.MethodPut:
		err = s.upload(w, r)
	default:
		w.Header().Set("Allow", "GET, HEAD, POST, PUT")
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	if err != nil {
		we := rpc.Wire(err)
		status := rpc.Status(we.Code)
		if we.Code == guestapi.CodeResourceExhausted {
			status = http.StatusInsufficientStorage
		}
		rpc.WriteJSON(w, status, &guestapi.FileError{Code: status, Message: we.Message})
	}
}

// maxUnsized bounds the contents served of a file whose reported size is 0, as
// in /proc.
const maxUnsized = 8 << 20

func (s *Server) download(w http.ResponseWriter, r *http.Request) error {
	c, err := s.filesUser(r)
	if err != nil {
		return err
	}
	name, err := cleanPath(r.URL.Query().Get("path"), c.Account)
	if err != nil {
		return err
	}
	var f *os.File
	var unsized []byte
	err = s.as(c, func(*account.Account) error {
		// stat before open: opening some devices has an effect.
		var st unix.Stat_t
		if err := unix.Stat(name, &st); err != nil {
			return rpc.FileError(err, name)
		}
		if err := regular.Check(&st, name); err != nil {
			return err
		}
		f, err = regular.Open(name)
		if err == nil && st.Size == 0 {
			unsized, err = io.ReadAll(io.LimitReader(f, maxUnsized))
		}
		return rpc.FileError(err, name)
	})
	if f != nil {
		defer f.Close()
	}
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return rpc.FileError(err, name)
	}
	// Without a type, ServeContent would read the contents to guess one.
	w.Header().Set("Content-Type", "application/octet-stream")
	var contents io.ReadSeeker = f
	if len(unsized) > 0 {
		contents = bytes.NewReader(unsized)
	}
	http.ServeContent(fileWriter{w}, r, "", info.ModTime(), contents)
	return nil
}

// fileWriter copies in larger pieces than io.Copy does.
type fileWriter struct{ http.ResponseWriter }

func (w fileWriter) ReadFrom(r io.Reader) (int64, error) {
	buf := copyPool.Get().(*[copySize]byte)
	defer copyPool.Put(buf)
	return io.CopyBuffer(struct{ io.Writer }{w.ResponseWriter}, r, buf[:])
}
