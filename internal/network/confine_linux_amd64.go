package network

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// The calls that amd64 has in addition to the calls in the lists.
var (
	allowedHere = []uint32{unix.SYS_EPOLL_WAIT, unix.SYS_POLL}
	missingHere = []uint32{unix.SYS_OPEN, unix.SYS_STAT, unix.SYS_LSTAT, unix.SYS_NEWFSTATAT, unix.SYS_ACCESS, unix.SYS_READLINK}
)
