package guest

import "golang.org/x/sys/unix"

// What the filter knows of this processor's system calls.
const (
	auditArch = unix.AUDIT_ARCH_X86_64
	otherABI  = 0x40000000 // x32's calls have numbers from here
)

var (
	// modeCalls have a mode, the argument of that index.
	modeCalls = map[uint32]int{
		unix.SYS_CHMOD: 1, unix.SYS_FCHMOD: 1, unix.SYS_FCHMODAT: 2, unix.SYS_FCHMODAT2: 2,
		unix.SYS_CREAT: 1, unix.SYS_MKNOD: 1, unix.SYS_MKNODAT: 2,
	}
	// openCalls have flags, the argument of that index, and then a mode.
	openCalls = map[uint32]int{unix.SYS_OPEN: 1, unix.SYS_OPENAT: 2}
)
