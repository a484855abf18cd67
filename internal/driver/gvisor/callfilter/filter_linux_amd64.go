package callfilter

import (
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/cpuid"
)

// nativeArch is the architecture of calls by the numbers that the filter knows.
const nativeArch = unix.AUDIT_ARCH_X86_64

// foreignNumbers is the bit of x32 calls, which are of the same architecture: the
// numbers of the others, and more, with this bit set.
const foreignNumbers = 0x40000000

var oldModeArguments = map[uint32]uint32{
	unix.SYS_CHMOD: 1,
	unix.SYS_CREAT: 1,
	unix.SYS_MKDIR: 1,
	unix.SYS_MKNOD: 1,
	unix.SYS_OPEN:  2,
}

// archSetCPUID is the request of arch_prctl(2) that makes the CPUID instruction
// fault.
const archSetCPUID = 0x1012

// refusedRequests is empty on a processor with APX, whose registers gVisor does not
// save. There CPUID must trap, so that gVisor can hide APX from programs.
func refusedRequests() []refusedRequest {
	const apx = 1 << 21 // in EDX; Intel's manual, CPUID leaf 7, sub-leaf 1
	if new(cpuid.Native).Query(cpuid.In{Eax: 7, Ecx: 1}).Edx&apx != 0 {
		return nil
	}
	return []refusedRequest{
		{unix.SYS_ARCH_PRCTL, archSetCPUID, unix.ENODEV}, // as if the processor could not
	}
}
