package gvisor

import "golang.org/x/sys/unix"

var oldModeArguments = map[uint32]uint32{
	unix.SYS_CHMOD: 1,
	unix.SYS_CREAT: 1,
	unix.SYS_MKDIR: 1,
	unix.SYS_MKNOD: 1,
	unix.SYS_OPEN:  2,
}
