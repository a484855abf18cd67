package files

import (
	"crypto/rand"
	"net/http"
	"os"
	"path"
	"strings"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// fileRequest returns the account and the clean path of a request.
func (s *Server) fileRequest(r *http.Request, name string, raw []byte) (*account.Account, string, error) {
	a, err := s.accounts.Find(rpc.User(r))
	if err != nil {
		return nil, "", err
	}
	if len(raw) > 0 {
		name = string(raw)
	}
	clean, err := cleanPath(name, a)
	return a, clean, err
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

// filesUser returns the account that a request for contents names.
func (s *Server) filesUser(r *http.Request) (*account.Account, error) {
	name := r.URL.Query().Get("username")
	if name == "" {
		name = rpc.User(r)
	}
	return s.accounts.Find(name)
}

// makeParents makes a directory and its missing parents.
func makeParents(dir string) error {
	return rpc.FileError(os.MkdirAll(dir, 0o755), dir)
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
