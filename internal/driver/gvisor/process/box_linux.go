package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/users"
	"github.com/glovebox-dev/glovebox/internal/network"
)

// IsOfBox reports whether a process is the sentry or the network of that box.
// Names of boxes are not secret, and any user can give a process any arguments. So
// the process must also belong to this user or to a box user. A zombie has no
// arguments.
func IsOfBox(pid int, id string) bool {
	args, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return false
	}
	name, rest, _ := strings.Cut(string(args), "\x00")
	// Boxes of earlier versions have a gofer.
	if name != "runsc-sandbox" && name != "runsc-gofer" && name != network.ProcessName || !strings.Contains(rest, id) {
		return false
	}
	status, err := Status(pid)
	if err != nil {
		return false
	}
	uid, err := strconv.ParseUint(status["Uid"], 10, 32)
	return err == nil && (uid == uint64(os.Geteuid()) || users.Contains(uid))
}

// OfBox returns the host's process IDs of a box's sentry and network. It
// searches /proc and does not use the record.
func OfBox(id string) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && IsOfBox(pid, id) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// KillBox kills the processes whose arguments contain a box's name. It returns when
// there are none.
func KillBox(id string) error {
	for deadline := time.Now().Add(killTime); ; time.Sleep(time.Millisecond) {
		pids := OfBox(id)
		if len(pids) == 0 {
			return nil
		}
		var errs []error
		for _, pid := range pids {
			errs = append(errs, Signal(pid, id, unix.SIGKILL))
		}
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("processes %v do not end", pids), errors.Join(errs...))
		}
	}
}

// Kill kills a process if it belongs to that box. It returns when the process has
// ended.
func Kill(pid int, id string) error {
	for deadline := time.Now().Add(killTime); IsOfBox(pid, id); time.Sleep(time.Millisecond) {
		if err := Signal(pid, id, unix.SIGKILL); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d does not end", pid)
		}
	}
	return nil
}

// Signal sends a signal to a process if it still belongs to that box,
// because its process ID may have been reused.
func Signal(pid int, id string, sig unix.Signal) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil // the process has ended
	}
	defer unix.Close(fd)
	if !IsOfBox(pid, id) {
		return nil
	}
	if err := SendAsOwner(pid, fd, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("send %v to process %d: %w", sig, pid, err)
	}
	return nil
}

// SendAsOwner sends a signal to the process of the pidfd fd. A supervisor has no
// rights over the user namespace that another supervisor made. So a thread changes
// to the user of that process, which may send the signal, and ends.
func SendAsOwner(pid, fd int, sig unix.Signal) error {
	err := unix.PidfdSendSignal(fd, sig, nil, 0)
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	status, serr := Status(pid)
	uid, perr := strconv.ParseUint(status["Uid"], 10, 32)
	if serr != nil || perr != nil || !users.Contains(uid) {
		return err
	}
	errc := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		const keep = ^uintptr(0)
		if _, _, errno := syscall.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(uid), keep); errno != 0 {
			errc <- os.NewSyscallError("setresuid", errno)
			return
		}
		errc <- unix.PidfdSendSignal(fd, sig, nil, 0)
	}()
	return <-errc
}
