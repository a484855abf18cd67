package guest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Pod has a network that its containers share. Kubernetes cannot make a Pod
// without one. So the guest of a Pod starts itself again in a network namespace of
// its own, which has only a loopback interface and perhaps a tunnel's: see
// [order.carry]. A process that is not root needs a user namespace for that, which
// not every system call filter permits. If it is refused, the guest stays where it
// is, and [guestapi.Limits] tells the driver.

const (
	leaveFlag    = "--leave-network"
	loopbackFlag = "--raise-loopback"
	// refusalFD is where a process in new namespaces says why it cannot be the guest.
	// It closes the descriptor when it can.
	refusalFD = 3
	// maxRefusal bounds that text, in bytes.
	maxRefusal = 4 << 10
)

// leaveNetwork runs the guest in namespaces of its own, and returns its exit status when
// it has ended. If it returns an error, this process must be the guest.
func (o *order) leaveNetwork(args []string) (status int, refused error) {
	args = without(args, leaveFlag)
	signals, stop := forwarded()
	defer stop()
	cmd, err := o.startApart(args)
	if err != nil {
		return 0, err
	}
	hide() // after the start, which opens files of the child that would be root's
	return follow(cmd, signals), nil
}

func (o *order) startApart(args []string) (*exec.Cmd, error) {
	const apart = unix.CLONE_NEWUSER | unix.CLONE_NEWNET
	if o.tunnel {
		return startIn(apart, [2]int{}, nil, append([]string{carryFlag, fmt.Sprintf("%d:%d", os.Geteuid(), os.Getegid())}, args...))
	}
	args = append([]string{loopbackFlag}, args...)
	own := [2]int{os.Geteuid(), os.Getegid()}
	cmd, err := startIn(apart, own, []uintptr{unix.CAP_NET_ADMIN}, args)
	if err != nil { // gVisor has no ambient capabilities, and its loopback is up
		cmd, err = startIn(apart, own, nil, args)
	}
	return cmd, err
}

// startIn starts this program as "serve" with args in new namespaces, where this
// process's user and group have the identifiers own. It returns when the process is
// on its way to be the guest, or the reason why it is not.
func startIn(namespaces uintptr, own [2]int, ambient []uintptr, args []string) (*exec.Cmd, error) {
	refusal, says, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer refusal.Close()
	cmd := exec.Command("/proc/self/exe", append([]string{"serve"}, args...)...)
	cmd.Args[0] = Program
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stderr, os.Stderr // nodes keep both in one log
	cmd.ExtraFiles = []*os.File{says}                                  // refusalFD
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  namespaces,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: own[0], HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: own[1], HostID: os.Getegid(), Size: 1}},
		AmbientCaps: ambient,
	}
	err = cmd.Start()
	says.Close()
	if err != nil {
		return nil, fmt.Errorf("make a namespace: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(refusal, maxRefusal))
	if err == nil && len(text) > 0 {
		err = errors.New(strings.ToValidUTF8(string(text), "?")) //nolint:err113 // that process's words
	}
	if err != nil {
		_ = cmd.Wait() // it says why it ended
		return nil, err
	}
	return cmd, nil
}

// forwarded returns the signals that are for the guest. Those that arrive while it
// starts are among them.
func forwarded() (signals chan os.Signal, stop func()) {
	signals = make(chan os.Signal, 4)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT)
	return signals, func() { signal.Stop(signals) }
}

// follow passes signals on to the guest until it ends, and returns its exit status.
func follow(cmd *exec.Cmd, signals <-chan os.Signal) int {
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-signals:
				_ = cmd.Process.Signal(s) // it may have ended
			case <-ended:
				return
			}
		}
	}()
	err := cmd.Wait()
	close(ended)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return exit.ExitCode()
	}
	fmt.Fprintln(os.Stderr, "glovebox-guest:", err)
	return 1
}

// refuse says why this process cannot be the guest, and ends it.
func refuse(err error) {
	fmt.Fprint(os.NewFile(refusalFD, "refusal"), err)
	os.Exit(1)
}

// raiseLoopback brings the loopback interface up, and executes this program again
// as "serve" with args, without capabilities. It returns only if that fails.
func raiseLoopback(args []string) error {
	runtime.LockOSThread()
	if err := loopbackUp(); err != nil {
		return err
	}
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) // gVisor has none
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return os.NewSyscallError("capset", err)
	}
	args = without(args, loopbackFlag)
	return os.NewSyscallError("execve", syscall.Exec("/proc/self/exe", append([]string{Program, "serve"}, args...), os.Environ()))
}

// without returns args without a flag that has no value.
func without(args []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == name })
}

// loopbackUp brings the loopback interface up, unless it is.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ioctl := func(order uintptr) error {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), order, uintptr(unsafe.Pointer(request)))
		if errno != 0 {
			return os.NewSyscallError("ioctl", errno)
		}
		return nil
	}
	if err := ioctl(unix.SIOCGIFFLAGS); err != nil {
		return err
	}
	if request.Uint16()&unix.IFF_UP != 0 {
		return nil
	}
	request.SetUint16(request.Uint16() | unix.IFF_UP | unix.IFF_RUNNING)
	return ioctl(unix.SIOCSIFFLAGS)
}

// hide keeps programs of the same user from tracing this process.
func hide() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }
