package files

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/regular"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

func (s *Server) stat(r *http.Request, in *guestapi.PathRequest) (*guestapi.EntryResponse, error) {
	c, name, err := s.fileRequest(r, in.Path, in.RawPath)
	if err != nil {
		return nil, err
	}
	return s.entryOf(r, c, name)
}

func (s *Server) entryOf(r *http.Request, c *caller, name string) (*guestapi.EntryResponse, error) {
	var out guestapi.EntryResponse
	err := s.as(c, func(*account.Account) (err error) {
		d := describer{extended: rpc.Extended(r)}
		out.Entry, err = d.entry(name)
		return rpc.FileError(err, name)
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

func (s *Server) makeDir(r *http.Request, in *guestapi.PathRequest) (*guestapi.EntryResponse, error) {
	c, name, err := s.fileRequest(r, in.Path, in.RawPath)
	if err != nil {
		return nil, err
	}
	err = s.as(c, func(owner *account.Account) error {
		own := giver(owner)
		if err := makeDirs(path.Dir(name), own); err != nil {
			return err
		}
		err := unix.Mkdir(name, 0o755)
		if err == nil && own != nil {
			err = own(name)
		}
		if err == unix.EEXIST {
			var st unix.Stat_t
			if unix.Stat(name, &st) == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
				return rpc.Errorf(guestapi.CodeInvalidArgument, "%s: exists and is not a directory", name)
			}
		}
		return rpc.FileError(err, name)
	})
	if err != nil {
		return nil, err
	}
	return s.entryOf(r, c, name)
}

func (s *Server) move(r *http.Request, in *guestapi.MoveRequest) (*guestapi.EntryResponse, error) {
	c, from, err := s.fileRequest(r, in.Source, in.RawSource)
	if err != nil {
		return nil, err
	}
	_, to, err := s.fileRequest(r, in.Destination, in.RawDestination)
	if err != nil {
		return nil, err
	}
	err = s.as(c, func(owner *account.Account) error {
		var st unix.Stat_t
		if err := unix.Lstat(from, &st); err != nil {
			return rpc.FileError(err, from)
		}
		if err := makeDirs(path.Dir(to), giver(owner)); err != nil {
			return err
		}
		err := unix.Rename(from, to)
		if err == unix.EXDEV {
			return moveAcross(from, to)
		}
		return rpc.FileError(err, from+" to "+to)
	})
	if err != nil {
		return nil, err
	}
	return s.entryOf(r, c, to)
}

// moveAcross moves to another file system. It copies the source beside the
// destination, renames the copy, and then removes the source.
func moveAcross(from, to string) error {
	temp := tempName(path.Dir(to))
	if err := copyTree(from, temp); err != nil {
		os.RemoveAll(temp)
		return err
	}
	if err := unix.Rename(temp, to); err != nil {
		os.RemoveAll(temp)
		return rpc.FileError(err, to)
	}
	return rpc.FileError(os.RemoveAll(from), from)
}

// copyTree copies a file, link or directory. Other kinds of files cannot be
// moved to another file system.
func copyTree(from, to string) error {
	var st unix.Stat_t
	if err := unix.Lstat(from, &st); err != nil {
		return rpc.FileError(err, from)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		target, err := os.Readlink(from)
		if err != nil {
			return rpc.FileError(err, from)
		}
		if err := os.Symlink(target, to); err != nil {
			return rpc.FileError(err, to)
		}
		keepOwner(to, &st)
		return nil
	case unix.S_IFREG:
		return copyFile(from, to, &st)
	case unix.S_IFDIR:
		if err := unix.Mkdir(to, 0o700); err != nil {
			return rpc.FileError(err, to)
		}
		entries, err := os.ReadDir(from)
		if err != nil {
			return rpc.FileError(err, from)
		}
		for _, e := range entries {
			if err := copyTree(path.Join(from, e.Name()), path.Join(to, e.Name())); err != nil {
				return err
			}
		}
		keepOwner(to, &st)
		return rpc.FileError(unix.Chmod(to, st.Mode&0o7777), to)
	}
	return rpc.Errorf(guestapi.CodeInvalidArgument, "%s: is of a kind that cannot be moved to another file system", from)
}

// keepOwner gives a copy to the owner of its source, if the thread's user may do
// so: root's moves keep owners, as renames do. It clears set-id bits.
func keepOwner(to string, st *unix.Stat_t) {
	_ = unix.Lchown(to, int(st.Uid), int(st.Gid))
}

func copyFile(from, to string, st *unix.Stat_t) error {
	src, err := regular.Open(from)
	if err != nil {
		return rpc.FileError(err, from)
	}
	defer src.Close()
	fd, err := regular.OpenAny(to, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return rpc.FileError(err, to)
	}
	dst := os.NewFile(uintptr(fd), to)
	_, err = io.Copy(dst, src)
	if m := readMetadata(from); err == nil && m != nil {
		_ = setMetadata(dst, m) // the other file system may have none
	}
	keepOwner(to, st)
	err = errors.Join(err, unix.Fchmod(fd, st.Mode&0o7777), dst.Close())
	return rpc.FileError(err, to)
}

func (s *Server) remove(r *http.Request, in *guestapi.PathRequest) (*struct{}, error) {
	c, name, err := s.fileRequest(r, in.Path, in.RawPath)
	if err != nil {
		return nil, err
	}
	if name == "/" {
		return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "the root directory cannot be removed")
	}
	err = s.as(c, func(*account.Account) error {
		var st unix.Stat_t
		if err := unix.Lstat(name, &st); err != nil && rpc.Extended(r) {
			return rpc.FileError(err, name) // E2B's agent removes a missing file with success
		}
		return rpc.FileError(os.RemoveAll(name), name)
	})
	if err != nil {
		return nil, err
	}
	return &struct{}{}, nil
}
