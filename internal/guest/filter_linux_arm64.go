package guest

import "golang.org/x/sys/unix"

// What the filter knows of this processor's system calls.
const (
	auditArch = unix.AUDIT_ARCH_AARCH64
	otherABI  = 0
)

var (
	// modeCalls have a mode, the argument of that index.
	modeCalls = map[uint32]int{
		unix.SYS_FCHMOD: 1, unix.SYS_FCHMODAT: 2, unix.SYS_FCHMODAT2: 2, unix.SYS_MKNODAT: 2,
	}
	// openCalls have flags, the argument of that index, and then a mode.
	openCalls = map[uint32]int{unix.SYS_OPENAT: 2}
)
