package contexts

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/process"
	"github.com/glovebox-dev/glovebox/internal/kernels"
)

// kernelPipe is the size of the output pipes, in bytes. A larger pipe wakes the
// guest less often.
const kernelPipe = 1 << 20

// addOutlet makes an output pipe of owner and returns the guest's end. The end is
// not an os.File: the runtime's poller would wake at every write of the child.
func addOutlet(d *process.Descriptors, owner *account.Account) (int, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return -1, err
	}
	d.AddChild(fds[1])
	if owner != nil {
		// Programs can then open /dev/stdout, and the kernel can open its own
		// outputs. They work without, so an error is ignored.
		_ = unix.Fchown(fds[1], int(owner.UID), int(owner.GID))
	}
	// If the OS kernel refuses a larger buffer, the usual one stays.
	_, _ = unix.FcntlInt(uintptr(fds[1]), unix.F_SETPIPE_SZ, kernelPipe)
	return fds[0], unix.SetNonblock(fds[0], true)
}

// addWires makes the descriptors of requests and of events.
func addWires(d *process.Descriptors, program kernels.Program, owner *account.Account) (requests, events *os.File, err error) {
	if !program.Fields {
		if requests, err = d.AddPipe(true); err != nil {
			return nil, nil, err
		}
		events, err = addMessages(d)
		return requests, events, err
	}
	if requests, err = d.AddOwnPipe(true, owner); err != nil {
		return nil, nil, err
	}
	events, err = d.AddOwnPipe(false, owner)
	return requests, events, err
}

// addMessages makes a SOCK_SEQPACKET pair. The child's end blocks.
func addMessages(d *process.Descriptors) (*os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	d.AddChild(fds[1])
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		return nil, err
	}
	f := os.NewFile(uintptr(fds[0]), "events")
	d.AddOurs(f)
	return f, nil
}

// addMemory makes an unnamed memory file that the child shares.
func addMemory(d *process.Descriptors) (*os.File, error) {
	fd, err := unix.MemfdCreate("code", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "code")
	d.AddOurs(f)
	// A duplicate shares the file offset, so the guest can set the child's
	// offset.
	theirs, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	d.AddChild(theirs)
	return f, nil
}
