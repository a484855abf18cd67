package gvisor

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// gVisor's kernel needs /proc until just before it puts a filter over itself, when
// it has no right to unmount anything any more. gVisor leaves that to a process
// that waits for it, for which it starts the whole program once more: four
// milliseconds of a processor, for two system calls. Here that process is a clone
// that shares the kernel's memory, and does nothing but those calls. It has no part
// in the Go runtime, so it is written in assembly.

// startUmounter starts a process that unmounts path, in the mount namespace of the
// caller and with its rights of now, once a byte can be read from the pipe, and
// exits with 0 then. It exits with 1 if the pipe ends without, or path cannot be
// unmounted; of descriptors it has none but the pipe and the standard streams. The
// caller waits for it, and calls this once at a time.
func startUmounter(pipe *os.File, path string) (pid int, err error) {
	if umounterPath, err = unix.BytePtrFromString(path); err != nil {
		return 0, err
	}
	// A signal's handler would be Go's, on a thread that Go does not know.
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

// What the umounter has of this process's memory. It outlives the call that starts
// it.
var (
	umounterStack [1 << 10]byte
	umounterPath  *byte
)

// cloneUmounter is startUmounter, with all signals blocked. It returns the new
// process's number, or an error's below zero.
//
//go:noescape
func cloneUmounter(pipe, stack uintptr, path *byte) int
