//go:build unix

package e2b

import (
	"errors"
	"os"
	"syscall"
)

// lock locks a file until it is closed, and reports whether it was free.
func lock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
