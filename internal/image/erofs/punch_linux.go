package erofs

import (
	"os"

	"golang.org/x/sys/unix"
)

// punch makes a part of a file a hole. Where the file system cannot, the space
// stays taken.
func punch(f *os.File, at, size int64) {
	_ = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, size)
}
