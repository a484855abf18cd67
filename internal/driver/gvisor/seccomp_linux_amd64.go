package gvisor

import (
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/cpuid"
)

var oldModeArguments = map[uint32]uint32{
	unix.SYS_CHMOD: 1,
	unix.SYS_CREAT: 1,
	unix.SYS_MKDIR: 1,
	unix.SYS_MKNOD: 1,
	unix.SYS_OPEN:  2,
}

// archSetCPUID asks arch_prctl(2) to have the CPUID instruction fault.
const archSetCPUID = 0x1012

// refusedRequests are none on a processor with registers that gVisor does not
// keep: its answers to CPUID, which have the trap, leave those out.
func refusedRequests() []refusedRequest {
	const apx = 1 << 21 // of EDX; Intel's manual, CPUID leaf 7, sub-leaf 1
	if new(cpuid.Native).Query(cpuid.In{Eax: 7, Ecx: 1}).Edx&apx != 0 {
		return nil
	}
	return []refusedRequest{
		{unix.SYS_ARCH_PRCTL, archSetCPUID, unix.ENODEV}, // what processors say that cannot
	}
}
