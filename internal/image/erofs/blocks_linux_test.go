package erofs

import (
	"os"
	"syscall"
	"testing"
)

// blocksOf returns the space that a file takes, in units of 512 bytes.
func blocksOf(t testing.TB, f *os.File) int64 {
	t.Helper()
	fi, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return fi.Sys().(*syscall.Stat_t).Blocks
}
