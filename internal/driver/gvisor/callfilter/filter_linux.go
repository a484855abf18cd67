package callfilter

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// modeArguments maps the system calls that set the mode of a file to the index of
// the mode argument. Calls that only some processors have are in oldModeArguments.
var modeArguments = map[uint32]uint32{
	unix.SYS_FCHMOD:    1,
	unix.SYS_FCHMODAT:  2,
	unix.SYS_FCHMODAT2: 2,
	unix.SYS_OPENAT:    3,
	unix.SYS_MKDIRAT:   2,
	unix.SYS_MKNODAT:   2,
}

// setID are the set-user-ID and set-group-ID bits of a mode.
const setID = unix.S_ISUID | unix.S_ISGID

// refuseCalls installs the filter of [Start] on the calling thread,
// permanently.
func refuseCalls() error {
	filter := callFilter()
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0); err != nil {
		return fmt.Errorf("install seccomp filter: %w", err)
	}
	return nil
}

func callFilter() []unix.SockFilter {
	// Offsets in seccomp_data. Of an argument it is the lower half, on the
	// processors that there are, which all put it first.
	const offsetNr, offsetArch, offsetArgs, argSize = 0, 4, 16, 8
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	jump := func(how uint16, k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | how | unix.BPF_K, K: k, Jt: yes, Jf: no}
	}
	answer := func(what uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: what}
	}
	refuse := func(errno unix.Errno) unix.SockFilter {
		return answer(unix.SECCOMP_RET_ERRNO | uint32(errno))
	}
	filter := []unix.SockFilter{
		// By other numbers the same calls would pass all that follows.
		load(offsetArch),
		jump(unix.BPF_JEQ, nativeArch, 1, 0),
		refuse(unix.ENOSYS),
		load(offsetNr),
		jump(unix.BPF_JSET, foreignNumbers, 0, 1),
		refuse(unix.ENOSYS),
		jump(unix.BPF_JEQ, unix.SYS_MEMBARRIER, 0, 1),
		refuse(unix.ENOSYS),
	}
	for _, calls := range []map[uint32]uint32{modeArguments, oldModeArguments} {
		for nr, arg := range calls {
			filter = append(filter,
				jump(unix.BPF_JEQ, nr, 0, 4),
				load(offsetArgs+argSize*arg),
				jump(unix.BPF_JSET, setID, 0, 1),
				refuse(unix.EPERM),
				answer(unix.SECCOMP_RET_ALLOW))
		}
	}
	for _, r := range refusedRequests() {
		filter = append(filter,
			jump(unix.BPF_JEQ, r.nr, 0, 4),
			load(offsetArgs),
			jump(unix.BPF_JEQ, r.request, 0, 1),
			refuse(r.errno),
			answer(unix.SECCOMP_RET_ALLOW))
	}
	return append(filter, answer(unix.SECCOMP_RET_ALLOW))
}
