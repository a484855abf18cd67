package process

import "golang.org/x/sys/unix"

// The parameters of the filter for arm64.
const (
	auditArch = unix.AUDIT_ARCH_AARCH64
	otherABI  = 0
)

var (
	// modeCalls maps a system call to the index of its mode argument.
	modeCalls = map[uint32]int{
		unix.SYS_FCHMOD: 1, unix.SYS_FCHMODAT: 2, unix.SYS_FCHMODAT2: 2, unix.SYS_MKNODAT: 2,
	}
	// openCalls maps a system call to the index of its flags. The mode follows
	// them.
	openCalls = map[uint32]int{unix.SYS_OPENAT: 2}
)
