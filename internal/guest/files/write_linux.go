package files

import (
	"errors"
	"io"
	"os"
	"path"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/regular"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// A write is an order to write a file.
type write struct {
	name     string
	append   bool // keep the contents, and the metadata
	metadata map[string]string
}

// store writes src to a file as a caller, and makes its parents.
func (s *Server) store(c *caller, w write, src io.Reader) (info guestapi.WriteInfo, err error) {
	if w.name, err = cleanPath(w.name, c.Account); err != nil {
		return info, err
	}
	if w.append {
		err = s.appendTo(c, w.name, src)
	} else {
		err = s.overwrite(c, w, src)
	}
	if err != nil {
		return info, err
	}
	return guestapi.WriteInfo{Name: path.Base(w.name), Type: guestapi.TypeFile, Path: w.name, Metadata: w.metadata}, nil
}

func (s *Server) appendTo(c *caller, name string, src io.Reader) error {
	var f *os.File
	err := s.accounts.As(c.Account, func() error {
		if err := makeDirs(path.Dir(name), nil); err != nil {
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
	buf := copyPool.Get().(*[copySize]byte)
	defer copyPool.Put(buf)
	in := &tracked{r: src}
	err = copyWith(buf, f, in)
	return in.explain(errors.Join(err, f.Close()), name)
}

// overwrite writes a file in place, after it has received all of src.
func (s *Server) overwrite(c *caller, w write, src io.Reader) error {
	var dir string
	name := w.name
	err := s.as(c, func(owner *account.Account) error {
		if err := makeDirs(path.Dir(name), giver(owner)); err != nil {
			return err
		}
		// Before the upload, which may be long.
		target, st, err := resolve(name)
		if err == nil {
			dir = path.Dir(target)
			err = checkWritable(target, st)
		}
		return err
	})
	if err != nil {
		return err
	}
	b, err := s.receive(src, dir, name)
	if err != nil {
		return err
	}
	defer b.close()
	for range maxReopens {
		done, err := s.put(c, w, b)
		if done || err != nil {
			return err
		}
	}
	return rpc.Errorf(guestapi.CodeAborted, "%s: is replaced again and again", name)
}

// maxReopens bounds how often a write begins anew, because a program replaced
// or removed the file.
const maxReopens = 10

// put makes a body the contents of a file. It is not done, and has changed
// nothing, if the file is gone or replaced when its turn comes.
func (s *Server) put(c *caller, w write, b *body) (done bool, err error) {
	name := w.name
	var f *os.File
	var made string
	err = s.as(c, func(owner *account.Account) (err error) {
		f, made, err = openToWrite(name, owner)
		return err
	})
	if f == nil {
		return false, err
	}
	defer f.Close()
	if err != nil {
		return false, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return false, rpc.FileError(err, name)
	}
	turn := &s.turns[(st.Dev^st.Ino)%uint64(len(s.turns))]
	turn.Lock()
	defer turn.Unlock()
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return false, rpc.FileError(err, name)
	}
	if st.Nlink == 0 {
		return false, nil
	}
	if made == "" || len(w.metadata) > 0 {
		err = setMetadata(f, w.metadata)
	}
	if err == nil {
		err = b.writeTo(f, &st)
	}
	err = errors.Join(err, f.Close())
	if err != nil && made != "" && st.Size == 0 {
		// Nothing can be done about an error.
		_ = s.as(c, func(*account.Account) error { return rpc.FileError(unix.Unlink(made), made) })
	}
	return true, rpc.FileError(err, name)
}

// turns serialize writers of one file, by its number. Writers of different files
// seldom share a lock.
type turns [64]sync.Mutex

// openToWrite opens a regular file for writing, or makes it for owner, or for the
// thread's user if that is nil; made is the path of a new file. The file is nil
// without an error if another program was faster.
func openToWrite(name string, owner *account.Account) (f *os.File, made string, err error) {
	target, st, err := resolve(name)
	if err != nil {
		return nil, "", err
	}
	flags := unix.O_WRONLY
	if st == nil {
		flags |= unix.O_CREAT | unix.O_EXCL
	}
	fd, err := regular.OpenAny(target, flags, newMode)
	switch {
	case st == nil && err == unix.EEXIST, st != nil && err == unix.ENOENT:
		return nil, "", nil
	case err == unix.ENXIO: // a FIFO without a reader, in the file's place
		return nil, "", rpc.Errorf(guestapi.CodeInvalidArgument, "%s: is not a regular file", name)
	case err != nil:
		return nil, "", rpc.FileError(err, name)
	}
	if f, err = regular.FromFD(fd, name); err != nil {
		return nil, "", err
	}
	if st != nil {
		return f, "", nil
	}
	// One change of the state, which watches of E2B's clients wait for.
	if owner != nil {
		err = unix.Fchown(fd, int(owner.UID), int(owner.GID))
	} else {
		err = unix.Fchmod(fd, newMode)
	}
	if err != nil {
		return nil, "", errors.Join(rpc.FileError(err, name), f.Close())
	}
	return f, target, nil
}

// newMode is the mode of new files.
const newMode = 0o644

// resolve follows the links of name, as an open would, and returns the path and
// the state of the file behind them. The state is nil if there is none. Any file
// but a regular one is refused, because opening it could have an effect.
func resolve(name string) (string, *unix.Stat_t, error) {
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
			return name, &st, regular.Check(&st, name)
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

// checkWritable returns an error if the thread's user may not write the file, or
// make it.
func checkWritable(name string, st *unix.Stat_t) error {
	if st != nil {
		return rpc.FileError(unix.Faccessat(unix.AT_FDCWD, name, unix.W_OK, unix.AT_EACCESS), name)
	}
	return rpc.FileError(unix.Faccessat(unix.AT_FDCWD, path.Dir(name), unix.W_OK|unix.X_OK, unix.AT_EACCESS), name)
}
