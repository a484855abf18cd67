package network

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A gateway's process parses untrusted bytes from a sandbox and can use the
// machine's network. It needs nothing else of the machine, so it drops all other
// rights before it reads the first frame.

// The names of the layers that isolate the process from the machine.
const (
	wallNamespaces   = "namespaces of its own"
	wallRoot         = "an empty root directory"
	wallCapabilities = "no capabilities"
	wallLandlock     = "Landlock"
	wallSeccomp      = "an allow-list of system calls"
)

// apart returns the attributes that start the process in its own namespaces of
// all types except network. In its user namespace the process is root, until it
// drops its capabilities.
func apart() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Setsid:      true,
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
}

// confine drops the rights that this process does not need, in all of its
// threads. It returns the layers that isolate the process from then on. The list
// of system calls is mandatory. The other layers depend on the rights of this
// user and on the host kernel. The list alone already has no call that opens a
// file.
func confine(isApart bool) (walls []string, err error) {
	// Forbid core dumps, and debuggers even of the same user.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("hide memory: %w", err)
	}
	if isApart {
		walls = append(walls, wallNamespaces)
		// AppArmor can forbid mounts in the user namespace of an ordinary user.
		if err := enterEmptyRoot(); err == nil {
			walls = append(walls, wallRoot)
		} else if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
			return nil, fmt.Errorf("enter an empty root: %w", err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("set no_new_privs: %w", err)
	}
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0)
	if !errors.Is(errno, unix.ENOTSUP) { // ENOTSUP comes from a program with cgo
		if errno != 0 {
			return nil, fmt.Errorf("set no_new_privs: %w", errno)
		}
		none, err := dropCapabilities()
		if err != nil {
			return nil, fmt.Errorf("drop capabilities: %w", err)
		}
		if none {
			walls = append(walls, wallCapabilities)
		}
		landlocked, err := landlock()
		if err != nil {
			return nil, fmt.Errorf("use Landlock: %w", err)
		}
		if landlocked {
			walls = append(walls, wallLandlock)
		}
	}
	if err := filterCalls(); err != nil {
		return nil, fmt.Errorf("filter system calls: %w", err)
	}
	return append(walls, wallSeccomp), nil
}

// enterEmptyRoot makes an empty directory the root of this process's mount
// namespace, and detaches all other mounts.
func enterEmptyRoot() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return os.NewSyscallError("mount", err)
	}
	// The mount point may be any directory. /proc always exists.
	const at, flags = "/proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("empty", at, "tmpfs", flags, "size=4k,nr_inodes=1,mode=0555"); err != nil {
		return os.NewSyscallError("mount", err)
	}
	if err := unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|flags, ""); err != nil {
		return os.NewSyscallError("mount", err)
	}
	if err := unix.Chdir(at); err != nil {
		return os.NewSyscallError("chdir", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return os.NewSyscallError("pivot_root", err)
	}
	// The old root is now mounted over the new one.
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return os.NewSyscallError("umount", err)
	}
	return os.NewSyscallError("chdir", unix.Chdir("/"))
}

// EmptyBoundingSet removes all capabilities from the bounding set of all threads,
// and reports whether the set is empty. Only a process with CAP_SETPCAP can
// remove them. If [entry] has emptied the set, it does nothing. It returns an
// error in a program with cgo.
func EmptyBoundingSet() (empty bool, err error) {
	empty = true
	for c := uintptr(0); ; c++ {
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if err != nil {
			return empty, nil // c is above the last capability
		}
		if has == 0 {
			continue
		}
		switch _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0); errno {
		case 0:
		case unix.EPERM:
			empty = false
		default:
			return false, errno
		}
	}
}

// dropCapabilities removes all capabilities from all threads, and reports whether
// every set is empty.
func dropCapabilities() (none bool, err error) {
	if none, err = EmptyBoundingSet(); err != nil {
		return false, err
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var empty [2]unix.CapUserData
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&empty[0])), 0)
	if errno != 0 {
		return false, errno
	}
	return none, nil
}

// A landlockRules is struct landlock_ruleset_attr. It lists the rights that are
// refused unless a rule allows them. The process adds no rules.
type landlockRules struct{ files, net, scoped uint64 }

// landlockRulesOf returns the rules for a version of Landlock. They refuse all
// access to files, binding TCP ports, and the machine's abstract Unix sockets.
// Earlier versions know fewer fields, which are then 0.
func landlockRulesOf(version int) (r landlockRules, size uintptr) {
	files := 13
	for _, added := range []int{2, 3, 5} { // REFER, TRUNCATE, IOCTL_DEV
		if version >= added {
			files++
		}
	}
	r.files = 1<<files - 1
	size = unsafe.Sizeof(r.files)
	if version >= 4 {
		r.net = unix.LANDLOCK_ACCESS_NET_BIND_TCP
		size += unsafe.Sizeof(r.net)
	}
	if version >= 6 {
		r.scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
		size += unsafe.Sizeof(r.scoped)
	}
	return r, size
}

// landlock drops all rights on files from all threads. It returns false if the
// host kernel has no Landlock, or has it disabled.
func landlock() (bool, error) {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return false, nil
	}
	rules, size := landlockRulesOf(int(version))
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&rules)), size, 0)
	if errno != 0 {
		return false, errno
	}
	defer unix.Close(int(fd))
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return false, errno
	}
	return true, nil
}

// The system calls that the gateway and Go's runtime make after confine.
var allowedCalls = []uint32{
	// The most frequent calls come first, because the filter tests them in order.
	unix.SYS_FUTEX, unix.SYS_RECVMMSG, unix.SYS_SENDMMSG, unix.SYS_READ, unix.SYS_WRITE, unix.SYS_EPOLL_PWAIT,
	unix.SYS_WRITEV, unix.SYS_PPOLL, unix.SYS_NANOSLEEP, unix.SYS_SCHED_YIELD, unix.SYS_MADVISE,
	unix.SYS_SENDTO, unix.SYS_RECVFROM, unix.SYS_SENDMSG, unix.SYS_RECVMSG, unix.SYS_READV,
	unix.SYS_CONNECT, unix.SYS_CLOSE, unix.SYS_SHUTDOWN, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_CREATE1,
	unix.SYS_GETSOCKOPT, unix.SYS_SETSOCKOPT, unix.SYS_GETSOCKNAME, unix.SYS_GETPEERNAME,
	unix.SYS_ACCEPT4, unix.SYS_BIND, unix.SYS_FSTAT, unix.SYS_FCNTL, unix.SYS_EVENTFD2, unix.SYS_PIPE2,
	unix.SYS_CLOCK_GETTIME, unix.SYS_GETTIMEOFDAY, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_GETRANDOM,
	unix.SYS_MUNMAP, unix.SYS_BRK, unix.SYS_MINCORE,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK,
	unix.SYS_RESTART_SYSCALL, unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_SCHED_GETAFFINITY, unix.SYS_UNAME,
	unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
}

// missingCalls look up files. The filter answers ENOENT, because libraries go on
// where a file is missing.
var missingCalls = []uint32{
	unix.SYS_OPENAT, unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2, unix.SYS_READLINKAT, unix.SYS_STATX,
}

// A guardedCall is allowed if one of its arguments, under a mask, equals one of
// the values.
type guardedCall struct {
	nr, arg, mask uint32
	values        []uint32
}

func guardedCalls() []guardedCall {
	return []guardedCall{
		// Memory of the runtime, which is never executable.
		{unix.SYS_MMAP, 2, unix.PROT_EXEC, []uint32{0}},
		{unix.SYS_MPROTECT, 2, unix.PROT_EXEC, []uint32{0}},
		// Connections, and netlink for the machine's addresses.
		{unix.SYS_SOCKET, 0, ^uint32(0), []uint32{unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}},
		// Threads, but no processes.
		{unix.SYS_CLONE, 0, unix.CLONE_THREAD, []uint32{unix.CLONE_THREAD}},
		// Signals of the runtime to its own process.
		{unix.SYS_TGKILL, 0, ^uint32(0), []uint32{uint32(unix.Getpid())}},
	}
}

// filterCalls makes the host kernel refuse all other system calls of this
// process, in all threads, permanently.
func filterCalls() error {
	filter := allowList()
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	tid, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return errno
	}
	if tid != 0 {
		return fmt.Errorf("thread %d has another filter", tid)
	}
	return nil
}

// allowList returns the BPF program for filterCalls.
func allowList() []unix.SockFilter {
	// Offsets in seccomp_data. For an argument it is the lower half, which comes
	// first on the supported, little-endian processors.
	const offsetNr, offsetArch, offsetArgs, argSize = 0, 4, 16, 8
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	equal := func(k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jt: yes, Jf: no}
	}
	answer := func(what uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: what}
	}
	const allow = unix.SECCOMP_RET_ALLOW
	refuse := func(errno unix.Errno) unix.SockFilter {
		return answer(unix.SECCOMP_RET_ERRNO | uint32(errno))
	}
	filter := []unix.SockFilter{
		load(offsetArch),
		equal(auditArch, 1, 0),
		answer(unix.SECCOMP_RET_KILL_PROCESS),
		load(offsetNr),
	}
	for _, nr := range append(slices.Clone(allowedCalls), allowedHere...) {
		filter = append(filter, equal(nr, 0, 1), answer(allow))
	}
	for _, c := range guardedCalls() {
		n := uint8(len(c.values))
		filter = append(filter,
			equal(c.nr, 0, 2*n+3),
			load(offsetArgs+argSize*c.arg),
			unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: c.mask})
		for _, v := range c.values {
			filter = append(filter, equal(v, 0, 1), answer(allow))
		}
		filter = append(filter, refuse(unix.EPERM))
	}
	for _, nr := range append(slices.Clone(missingCalls), missingHere...) {
		filter = append(filter, equal(nr, 0, 1), refuse(unix.ENOENT))
	}
	return append(filter, refuse(unix.EPERM))
}
