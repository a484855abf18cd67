package gvisor

import "golang.org/x/sys/unix"

var oldModeArguments = map[uint32]uint32{
	unix.SYS_CHMOD: 1,
	unix.SYS_CREAT: 1,
	unix.SYS_MKDIR: 1,
	unix.SYS_MKNOD: 1,
	unix.SYS_OPEN:  2,
}

// archSetCPUID asks arch_prctl(2) to have the CPUID instruction fault.
const archSetCPUID = 0x1012

var refusedRequests = []refusedRequest{
	{unix.SYS_ARCH_PRCTL, archSetCPUID, unix.ENODEV}, // what processors say that cannot
}
