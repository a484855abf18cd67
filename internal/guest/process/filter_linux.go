package process

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// RefuseSetID installs a system call filter in this process and its children.
// The filter refuses every call that would give a file a set-user-ID or
// set-group-ID bit. Such a file in a directory of the host would give a user of
// the host its owner's rights. The filter cannot look into memory: openat2,
// io_uring and the calls of other ABIs therefore fail with ENOSYS.
func RefuseSetID() error {
	program := setIDFilter()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	fprog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	// TSYNC applies the filter to all threads of this process.
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&fprog)))
	if errno != 0 {
		return fmt.Errorf("set system call filter: %w", errno)
	}
	return nil
}

const (
	setIDBits = unix.S_ISUID | unix.S_ISGID
	// open uses its mode argument only when it makes a file.
	makesFile = unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY
)

// setIDFilter returns the filter's program.
func setIDFilter() []unix.SockFilter {
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		anyBit = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		ret    = unix.BPF_RET | unix.BPF_K

		number, arch = 0, 4 // offsets in seccomp_data
	)
	op := func(code uint16, k uint32, jt, jf uint8) unix.SockFilter {
		return unix.SockFilter{Code: code, Jt: jt, Jf: jf, K: k}
	}
	// The low half of an argument comes first on the supported, little-endian
	// machines.
	arg := func(i int) uint32 { return 16 + 8*uint32(i) }
	allow := op(ret, unix.SECCOMP_RET_ALLOW, 0, 0)
	refuse := op(ret, unix.SECCOMP_RET_ERRNO|uint32(unix.EPERM), 0, 0)
	absent := op(ret, unix.SECCOMP_RET_ERRNO|uint32(unix.ENOSYS), 0, 0)

	p := []unix.SockFilter{
		op(load, arch, 0, 0),
		op(equal, auditArch, 1, 0),
		absent,
		op(load, number, 0, 0),
	}
	if otherABI != 0 {
		p = append(p, op(unix.BPF_JMP|unix.BPF_JGE|unix.BPF_K, otherABI, 0, 1), absent)
	}
	for _, nr := range absentCalls {
		p = append(p, op(equal, nr, 0, 1), absent)
	}
	for nr, mode := range modeCalls {
		p = append(p, op(equal, nr, 0, 4), op(load, arg(mode), 0, 0), op(anyBit, setIDBits, 0, 1), refuse, allow)
	}
	for nr, flags := range openCalls {
		p = append(p, op(equal, nr, 0, 6), op(load, arg(flags), 0, 0), op(anyBit, makesFile, 0, 3),
			op(load, arg(flags+1), 0, 0), op(anyBit, setIDBits, 0, 1), refuse, allow)
	}
	return append(p, allow)
}

// absentCalls have arguments in memory, where a filter cannot look.
var absentCalls = []uint32{unix.SYS_OPENAT2, unix.SYS_IO_URING_SETUP}
