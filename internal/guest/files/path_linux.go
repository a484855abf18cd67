package files

import (
	"cmp"
	"crypto/rand"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// fileRequest returns the caller and the clean path of a request.
func (s *Server) fileRequest(r *http.Request, name string, raw []byte) (*caller, string, error) {
	c, err := s.callerOf(r, rpc.User(r))
	if err != nil {
		return nil, "", err
	}
	if len(raw) > 0 {
		name = string(raw)
	}
	clean, err := cleanPath(name, c.Account)
	return c, clean, err
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

// filesUser returns the caller that a request for contents names.
func (s *Server) filesUser(r *http.Request) (*caller, error) {
	return s.callerOf(r, cmp.Or(r.URL.Query().Get("username"), rpc.User(r)))
}

// makeDirs makes a directory and its missing parents, and calls own with each
// directory that it made, unless own is nil.
func makeDirs(dir string, own func(dir string) error) error {
	fi, err := os.Stat(dir)
	if err == nil {
		if !fi.IsDir() {
			return rpc.FileError(unix.ENOTDIR, dir)
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return rpc.FileError(err, dir)
	}
	if err := makeDirs(path.Dir(dir), own); err != nil {
		return err
	}
	err = os.Mkdir(dir, 0o755)
	if errors.Is(err, fs.ErrExist) { // another call was faster
		return nil
	}
	if err == nil && own != nil {
		err = own(dir)
	}
	return rpc.FileError(err, dir)
}

// Temporary names have a fixed length, because a file's own name may already have
// the maximal length.
const (
	tempPrefix  = ".glovebox-"
	tempLetters = 26 // of rand.Text
)

// tempName returns a temporary name in a directory.
func tempName(dir string) string {
	return path.Join(dir, tempPrefix+rand.Text())
}

// isTempName reports whether tempName could have returned a file's name.
func isTempName(name string) bool {
	text, ok := strings.CutPrefix(name, tempPrefix)
	return ok && len(text) == tempLetters && strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

// copySize is the size of the buffers for contents.
const copySize = 256 << 10

var copyPool = sync.Pool{New: func() any { return new([copySize]byte) }}
