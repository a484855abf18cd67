package search

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// A file is an open regular file. Package os would ask the kernel for the events of
// each file, which most files of a walk do not need.
type file int

// errKind is the error of a file that is not a regular one.
var errKind = errors.New("is not a regular file")

// openRegular opens a regular file of a directory, and returns its size.
func openRegular(dir *os.File, name string) (file, int64, error) {
	fd, err := openAt(dir, name, unix.O_NONBLOCK)
	if err != nil {
		return 0, 0, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = errKind
	}
	if err != nil {
		unix.Close(fd)
		return 0, 0, err
	}
	return file(fd), st.Size, nil
}

func (f file) close() { unix.Close(int(f)) }

// readAt reads from an offset until p is full or the file ends.
func (f file) readAt(p []byte, offset int64) (int, error) {
	at := 0
	for at < len(p) {
		n, err := unix.Pread(int(f), p[at:], offset+int64(at))
		if err == unix.EINTR {
			continue
		}
		if n <= 0 || err != nil {
			return at, err
		}
		at += n
	}
	return at, nil
}
