package files

import (
	"compress/gzip"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/regular"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

func (s *Server) upload(w http.ResponseWriter, r *http.Request) error {
	a, err := s.filesUser(r)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	mt, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return rpc.Errorf(guestapi.CodeInvalidArgument, "bad Content-Type: %v", err)
	}
	body := io.Reader(r.Body)
	switch encoding := r.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
	case "gzip": // the limit on the sandbox's disk bounds the output
		if body, err = gzip.NewReader(r.Body); err != nil {
			return rpc.Errorf(guestapi.CodeInvalidArgument, "read gzip: %v", err)
		}
	default:
		return rpc.Errorf(guestapi.CodeInvalidArgument, "unknown Content-Encoding %s", encoding)
	}
	var infos []guestapi.WriteInfo
	switch mt {
	case "application/octet-stream":
		info, err := s.store(a, q.Get("path"), body, q.Get("append") == "true")
		if err != nil {
			return err
		}
		infos = append(infos, info)
	case "multipart/form-data":
		infos, err = s.storeForm(a, q.Get("path"), body, params["boundary"])
		if err != nil {
			return err
		}
	default:
		return rpc.Errorf(guestapi.CodeInvalidArgument, "unknown Content-Type %s", mt)
	}
	if !rpc.Extended(r) {
		for i := range infos {
			infos[i].Type = guestapi.TypeWritten
		}
	}
	rpc.WriteJSON(w, http.StatusOK, infos)
	return nil
}

// maxParts bounds the files in one form.
const maxParts = 1000

// storeForm writes the "file" parts of a form. A single part goes to name, if
// that is given. Otherwise each part goes to its own file name.
func (s *Server) storeForm(a *account.Account, name string, body io.Reader, boundary string) ([]guestapi.WriteInfo, error) {
	if boundary == "" {
		return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "form without a boundary")
	}
	form := multipart.NewReader(body, boundary)
	var infos []guestapi.WriteInfo
	for {
		part, err := form.NextRawPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "read form: %v", err)
		}
		if part.FormName() != "file" {
			continue
		}
		if len(infos) >= maxParts || name != "" && len(infos) > 0 {
			return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "too many files in the form")
		}
		target := name
		if target == "" {
			// Not part.FileName, which removes the directory.
			_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
			if err != nil {
				return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "read form: %v", err)
			}
			target = params["filename"]
		}
		info, err := s.store(a, target, part, false)
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	if len(infos) == 0 {
		return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "no file in the form")
	}
	return infos, nil
}

// store writes src to a file as the user a, and makes its parents.
func (s *Server) store(a *account.Account, name string, src io.Reader, add bool) (guestapi.WriteInfo, error) {
	name, err := cleanPath(name, a)
	if err != nil {
		return guestapi.WriteInfo{}, err
	}
	if add {
		err = s.appendTo(a, name, src)
	} else {
		err = s.replace(a, name, src)
	}
	if err != nil {
		return guestapi.WriteInfo{}, err
	}
	return guestapi.WriteInfo{Name: path.Base(name), Type: guestapi.TypeFile, Path: name}, nil
}

func (s *Server) appendTo(a *account.Account, name string, src io.Reader) error {
	var f *os.File
	err := s.accounts.As(a, func() error {
		if err := makeParents(path.Dir(name)); err != nil {
			return err
		}
		fd, err := regular.OpenAny(name, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT, 0o644)
		if err == unix.ENXIO { // a FIFO without a reader
			return rpc.Errorf(guestapi.CodeInvalidArgument, "%s: is not a regular file", name)
		}
		if err == nil {
			f, err = regular.FromFD(fd, name)
		}
		return rpc.FileError(err, name)
	})
	if err != nil {
		return err
	}
	return receive(f, name, src)
}

// receive writes src to f and closes it.
func receive(f *os.File, name string, src io.Reader) error {
	buf := copyPool.Get().(*[copySize]byte)
	defer copyPool.Put(buf)
	in := &tracked{r: src}
	// Hide other methods than Read and Write: io.CopyBuffer would bypass the
	// buffer.
	_, err := io.CopyBuffer(struct{ io.Writer }{f}, struct{ io.Reader }{in}, buf[:])
	err = errors.Join(err, f.Close())
	if in.err != nil {
		return rpc.Errorf(guestapi.CodeCanceled, "%s: the upload broke off: %v", name, in.err)
	}
	return rpc.FileError(err, name)
}

// tracked separates errors of the source from errors of the destination.
type tracked struct {
	r   io.Reader
	err error
}

func (t *tracked) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	if err != nil && err != io.EOF {
		t.err = err
	}
	return n, err
}

// replace writes a file under a temporary name and then renames it.
func (s *Server) replace(a *account.Account, name string, src io.Reader) error {
	var f *os.File
	var temp string
	err := s.accounts.As(a, func() error {
		if err := makeParents(path.Dir(name)); err != nil {
			return err
		}
		target, old, err := replaced(name)
		if err != nil {
			return err
		}
		name, temp = target, tempName(target)
		fd, err := regular.OpenAny(temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
		if err != nil {
			return rpc.FileError(err, name)
		}
		f = os.NewFile(uintptr(fd), temp)
		mode := uint32(0o644)
		if old != nil {
			mode = old.Mode & 0o7777
			if a.UID == 0 && os.Geteuid() == 0 {
				err = unix.Fchown(fd, int(old.Uid), int(old.Gid))
			}
		}
		return rpc.FileError(errors.Join(err, unix.Fchmod(fd, mode)), name)
	})
	if f == nil {
		return err
	}
	if err != nil {
		f.Close()
	} else {
		err = receive(f, name, src)
	}
	return s.accounts.As(a, func() error {
		if err == nil {
			err = rpc.FileError(unix.Rename(temp, name), name)
		}
		if err != nil {
			_ = unix.Unlink(temp) // it may be gone with its directory
		}
		return err
	})
}

// replaced returns the path and the state of the file that a write to name
// replaces. It follows links, as an open would. The state is nil if the file
// does not exist. The thread's user must be able to write the file.
func replaced(name string) (string, *unix.Stat_t, error) {
	const maxLinks = 40
	for range maxLinks {
		var st unix.Stat_t
		err := unix.Lstat(name, &st)
		if err == unix.ENOENT {
			return name, nil, nil
		}
		if err != nil {
			return "", nil, rpc.FileError(err, name)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFLNK {
			if err := regular.Check(&st, name); err != nil {
				return "", nil, err
			}
			err := unix.Faccessat(unix.AT_FDCWD, name, unix.W_OK, unix.AT_EACCESS)
			return name, &st, rpc.FileError(err, name)
		}
		target, err := os.Readlink(name)
		if err != nil {
			return "", nil, rpc.FileError(err, name)
		}
		if !path.IsAbs(target) {
			// Do not clean the path: ".." after a linked directory is the parent
			// of the link's target.
			target = path.Dir(name) + "/" + target
		}
		name = target
	}
	return "", nil, rpc.FileError(unix.ELOOP, name)
}
