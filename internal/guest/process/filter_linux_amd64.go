package process

import "golang.org/x/sys/unix"

// The parameters of the filter for amd64.
const (
	auditArch = unix.AUDIT_ARCH_X86_64
	otherABI  = 0x40000000 // x32 system calls have numbers from here
)

var (
	// modeCalls maps a system call to the index of its mode argument.
	modeCalls = map[uint32]int{
		unix.SYS_CHMOD: 1, unix.SYS_FCHMOD: 1, unix.SYS_FCHMODAT: 2, unix.SYS_FCHMODAT2: 2,
		unix.SYS_CREAT: 1, unix.SYS_MKNOD: 1, unix.SYS_MKNODAT: 2,
	}
	// openCalls maps a system call to the index of its flags. The mode follows
	// them.
	openCalls = map[uint32]int{unix.SYS_OPEN: 1, unix.SYS_OPENAT: 2}
)
