package files

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

func (s *Server) listDir(r *http.Request, in *guestapi.ListDirRequest) (*guestapi.ListDirResponse, error) {
	c, name, err := s.fileRequest(r, in.Path, in.RawPath)
	if err != nil {
		return nil, err
	}
	var l *lister
	err = s.as(c, func(*account.Account) error {
		l = &lister{describer: describer{extended: rpc.Extended(r)}, room: maxListBytes}
		return l.list(name, int(max(in.Depth, 1)))
	})
	if err != nil {
		return nil, err
	}
	if l.truncated && !l.extended {
		return nil, rpc.Errorf(guestapi.CodeResourceExhausted, "%s: has more than can be listed at once; list a part of it", name)
	}
	return &guestapi.ListDirResponse{Entries: l.entries, Truncated: l.truncated}, nil
}

// maxListBytes bounds the names in a listing, in bytes, so that long names fit
// into one reply, too.
const maxListBytes = 4 << 20

// A lister collects directory entries up to the bounds of a reply.
type lister struct {
	describer
	entries   []guestapi.Entry
	room      int
	truncated bool
}

// list adds the entries of dir and its subdirectories, depth levels deep, in the
// order of their paths.
func (l *lister) list(dir string, depth int) error {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return rpc.FileError(err, dir)
	}
	names, more, err := firstNames(f, guestapi.MaxListEntries-len(l.entries))
	f.Close()
	if err != nil {
		return rpc.FileError(err, dir)
	}
	l.truncated = l.truncated || more
	for _, name := range names {
		full := path.Join(dir, name)
		e, err := l.entry(full)
		if err != nil {
			continue // it vanished, or its directory may not be searched
		}
		l.room -= weight(&e)
		if len(l.entries) >= guestapi.MaxListEntries || l.room < 0 {
			l.truncated = true
			return nil
		}
		l.entries = append(l.entries, e)
		if e.Type == guestapi.TypeDirectory && e.SymlinkTarget == "" && depth > 1 {
			err := l.list(full, depth-1)
			// A subdirectory that vanished, or that the user may not list, has
			// no entries.
			if code := guestapi.Code(""); err != nil {
				code = rpc.Wire(err).Code
				if code != guestapi.CodePermissionDenied && code != guestapi.CodeNotFound {
					return err
				}
			}
			if l.truncated {
				return nil
			}
		}
	}
	return nil
}

// weight returns about how many bytes an entry takes beyond those that every entry
// takes.
func weight(e *guestapi.Entry) int {
	n := 3*len(e.Path) + 2*len(e.SymlinkTarget)
	for key, value := range e.Metadata {
		n += len(key) + len(value)
	}
	return n
}

// firstNames returns the first n names in a directory, in sorted order, and
// whether there are more. It holds about twice [guestapi.MaxListEntries] at
// most.
func firstNames(f *os.File, n int) (names []string, more bool, err error) {
	for {
		batch, err := f.Readdirnames(4096)
		names = append(names, batch...)
		end := errors.Is(err, io.EOF)
		if err != nil && !end {
			return nil, false, err
		}
		if end || len(names) > 2*guestapi.MaxListEntries {
			slices.SortFunc(names, cmp.Compare[string])
			if len(names) > n {
				names, more = names[:max(n, 0)], true
			}
		}
		if end {
			return names, more, nil
		}
	}
}
