package account

import (
	"errors"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// errIdentity is the error of a thread that could not switch its user.
var errIdentity = errors.New("switch user")

// As runs f with the rights of a: its user, its groups, no capabilities. Only
// the calling thread changes, so f must make its system calls in its own
// goroutine.
//
// The effective ids change, and not only those for files, because gVisor has no
// setfsuid. The real and saved ids stay root's. So the thread can switch back,
// and the user's programs can neither signal nor trace it.
func (c *Accounts) As(a *Account, f func() error) error {
	if c.cfg.AsSelf || a.UID == 0 {
		return f()
	}
	runtime.LockOSThread()
	if err := become(a.UID, a.GID, a.Groups); err != nil {
		// Do not unlock the thread: its identity is unknown, so it must not run
		// other goroutines. It ends with this goroutine.
		return lockedError(err)
	}
	err := f()
	if back := become(0, 0, nil); back != nil {
		return lockedError(back)
	}
	runtime.UnlockOSThread()
	return err
}

// lockedError returns the error of a thread whose identity is wrong. The thread
// stays locked to the goroutine, and ends with it.
func lockedError(err error) error {
	return rpc.Errorf(guestapi.CodeInternal, "%v: %v", errIdentity, err)
}

// become sets the calling thread's effective user, group and supplementary
// groups. Setting groups needs root's capabilities. So they are set before
// leaving root, and after regaining it.
func become(uid, gid uint32, groups []uint32) error {
	const keep = ^uintptr(0)
	setUser := func() error { return raw(unix.SYS_SETRESUID, keep, uintptr(uid), keep) }
	setGroups := func() error {
		var p unsafe.Pointer
		if len(groups) > 0 {
			p = unsafe.Pointer(&groups[0])
		}
		_, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(p), 0)
		if errno != 0 {
			return os.NewSyscallError("setgroups", errno)
		}
		return raw(unix.SYS_SETRESGID, keep, uintptr(gid), keep)
	}
	if uid == 0 {
		if err := setUser(); err != nil {
			return err
		}
		return setGroups()
	}
	if err := setGroups(); err != nil {
		return err
	}
	return setUser()
}

// raw makes a system call on this thread only. The functions of package syscall
// would change every thread.
func raw(trap, a1, a2, a3 uintptr) error {
	if _, _, errno := unix.RawSyscall(trap, a1, a2, a3); errno != 0 {
		return os.NewSyscallError("setresid", errno)
	}
	return nil
}
