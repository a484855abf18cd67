package regular

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// Open opens a regular file for reading. Any other file is an error. It
// never blocks.
func Open(name string) (*os.File, error) {
	fd, err := OpenAny(name, unix.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	return FromFD(fd, name)
}

// OpenAny opens a file of any kind without blocking, as the open of a FIFO would.
func OpenAny(name string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Open(name, flags|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, mode)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// FromFD returns fd as a file if it is a regular one, and otherwise closes it.
func FromFD(fd int, name string) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, err
	}
	if err := Check(&st, name); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Check refuses every file that is not a regular one.
func Check(st *unix.Stat_t, name string) error {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return nil
	case unix.S_IFDIR:
		return rpc.Errorf(guestapi.CodeInvalidArgument, "%s: is a directory", name)
	}
	return rpc.Errorf(guestapi.CodeInvalidArgument, "%s: is not a regular file", name)
}

// IsExecutable reports whether this thread's user may execute a file.
func IsExecutable(file string) bool {
	var st unix.Stat_t
	return unix.Stat(file, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && MayExecute(file, &st)
}

// MayExecute is IsExecutable for a regular file of that state.
func MayExecute(file string, st *unix.Stat_t) bool {
	return st.Mode&0o111 != 0 && unix.Faccessat(unix.AT_FDCWD, file, unix.X_OK, unix.AT_EACCESS) == nil
}
