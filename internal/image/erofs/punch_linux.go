package erofs

import (
	"os"

	"golang.org/x/sys/unix"
)

// punch deallocates a part of a file. If the file system does not support it, the
// space stays allocated.
func punch(f *os.File, at, size int64) {
	_ = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, size)
}
