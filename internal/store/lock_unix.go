//go:build unix

package store

import (
	"os"

	"golang.org/x/sys/unix"
)

// lock takes the lock of f, exclusive or shared, which closing f frees. It waits, or
// returns errLocked if another has it. The lock belongs to the open file, not
// to the process, so two owners in one process see each other too.
func lock(f *os.File, exclusive, wait bool) error {
	how := unix.LOCK_SH
	if exclusive {
		how = unix.LOCK_EX
	}
	if !wait {
		how |= unix.LOCK_NB
	}
	for {
		switch err := unix.Flock(int(f.Fd()), how); err {
		case unix.EINTR:
		case unix.EWOULDBLOCK:
			return errLocked
		default:
			return err
		}
	}
}
