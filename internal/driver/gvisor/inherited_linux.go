package gvisor

import (
	"os"
	"strconv"
	"syscall"
)

// closeInherited closes the descriptors that this process was started with,
// but for the standard ones and those of keep. gVisor's library opens some that
// are not closed on exec, and a maker starts several boxes at once: without
// this, one box's processes would now and then have the sockets of another's.
// What the Go runtime opened since the start is closed on exec, which tells it
// apart.
func closeInherited(keep map[int]bool) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return // there is no /proc
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= 2 || keep[fd] {
			continue
		}
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0)
		if errno == 0 && flags&syscall.FD_CLOEXEC == 0 {
			_ = syscall.Close(fd)
		}
	}
}
