package role

import (
	"os"
	"strconv"
	"syscall"
)

// closeInherited closes the descriptors that this process was started with, except
// the standard ones and those in keep. gVisor's library opens some descriptors
// without close-on-exec, and a supervisor starts several boxes at once. Without
// closeInherited, a box's process could inherit the sockets of another box.
// Descriptors that the Go runtime has opened since the start are close-on-exec, so
// they stay.
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
