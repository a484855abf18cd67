package sentry

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The sentry needs /proc until just before it installs its seccomp filter, and then
// has no right to unmount it. gVisor starts its whole program once more as a
// process that waits and then unmounts it. That takes four milliseconds of a
// processor for two system calls. Here the process is a clone that shares the
// sentry's memory and makes only those calls. It has no Go runtime, so it is
// written in assembly.

// startUmounter starts a process that unmounts path when it can read a byte from
// the pipe, and then exits with 0. It has the mount namespace and the current
// rights of the caller. It exits with 1 if the pipe ends without a byte or path
// cannot be unmounted. It has no descriptors except the pipe and the standard
// streams. The caller waits for the process, and must not make concurrent calls.
func startUmounter(pipe *os.File, path string) (pid int, err error) {
	if umounterPath, err = unix.BytePtrFromString(path); err != nil {
		return 0, err
	}
	// A signal handler would be Go's, on a thread that Go does not know.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, before unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &all, &before); err != nil {
		return 0, os.NewSyscallError("sigprocmask", err)
	}
	r := cloneUmounter(pipe.Fd(), uintptr(unsafe.Pointer(&umounterStack))+unsafe.Sizeof(umounterStack), umounterPath)
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil); err != nil {
		return 0, os.NewSyscallError("sigprocmask", err)
	}
	if r < 0 {
		return 0, fmt.Errorf("start the process that unmounts %s: %w", path, unix.Errno(-r))
	}
	return r, nil
}

// The umounter's part of this process's memory. It remains after the call that
// starts the umounter.
var (
	umounterStack [1 << 10]byte
	umounterPath  *byte
)

// cloneUmounter is startUmounter with all signals blocked. It returns the new
// process ID, or a negated error number.
//
//go:noescape
func cloneUmounter(pipe, stack uintptr, path *byte) int
