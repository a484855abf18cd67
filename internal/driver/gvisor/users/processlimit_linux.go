package users

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// The host kernel exempts its root from the process limit, but not other users.
// Their limit is inherited from the program that started the server, and counts the
// processes of all boxes of a supervisor together. So the driver lifts the
// supervisor's limit.

// enoughProcesses is a sufficient limit for all boxes together, if root has no
// right to lift the limit. A box at its own default limit has about 500 processes.
const enoughProcesses = 1 << 15

// checkProcessLimit returns an error if the process limit is too low and cannot be
// raised.
func checkProcessLimit() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &limit); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	if limit.Max >= enoughProcesses {
		return nil
	}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &sets[0]); err != nil {
		return os.NewSyscallError("capget", err)
	}
	if sets[0].Effective&(1<<unix.CAP_SYS_RESOURCE) == 0 {
		return fmt.Errorf("RLIMIT_NPROC is %d, which would be that of all sandboxes, and no right is there to raise it", limit.Max)
	}
	return nil
}

// LiftProcessLimit raises the limit of a process as far as this process may.
func LiftProcessLimit(pid int) {
	limit := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if unix.Prlimit(pid, unix.RLIMIT_NPROC, &limit, nil) == nil || unix.Getrlimit(unix.RLIMIT_NPROC, &limit) != nil {
		return
	}
	limit.Cur = limit.Max
	_ = unix.Prlimit(pid, unix.RLIMIT_NPROC, &limit, nil) // on failure, the limit stays
}
