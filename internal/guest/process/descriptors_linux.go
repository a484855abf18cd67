package process

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
)

// Descriptors are the file descriptors of a new process, and the guest's ends of
// them. Without a start, CloseAll closes both.
type Descriptors struct {
	child []int      // of the process, in order from 0
	ours  []*os.File // files to close if the process does not start
}

// AddChild makes fd the process's next descriptor, and takes it over.
func (d *Descriptors) AddChild(fd int) { d.child = append(d.child, fd) }

// AddOurs makes f a file that CloseAll closes. The guest keeps it if the process
// starts.
func (d *Descriptors) AddOurs(f *os.File) { d.ours = append(d.ours, f) }

// AddNull makes /dev/null, opened with flags, the process's next descriptor.
func (d *Descriptors) AddNull(flags int) error {
	null, err := unix.Open(os.DevNull, flags|unix.O_CLOEXEC, 0)
	if err == nil {
		d.AddChild(null)
	}
	return err
}

// AddPipe makes one end of a pipe the process's next descriptor, and returns the
// guest's end. Only the process's end blocks.
func (d *Descriptors) AddPipe(childReads bool) (*os.File, error) {
	return d.pipe(childReads, nil)
}

// AddOwnPipe is AddPipe for a process that opens the pipe anew by its path in
// /proc: its owner is the process's user, or the guest's if owner is nil.
func (d *Descriptors) AddOwnPipe(childReads bool, owner *account.Account) (*os.File, error) {
	return d.pipe(childReads, owner)
}

// pipe is AddPipe with the user who owns the pipe; nil is the guest's.
func (d *Descriptors) pipe(childReads bool, owner *account.Account) (*os.File, error) {
	our, err := d.rawPipe(childReads, owner)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(our), "pipe")
	d.AddOurs(f)
	return f, nil
}

// rawPipe is pipe that returns a descriptor, which the caller closes.
func (d *Descriptors) rawPipe(childReads bool, owner *account.Account) (int, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return -1, err
	}
	theirs, our := fds[1], fds[0]
	if childReads {
		theirs, our = our, theirs
	}
	d.AddChild(theirs)
	if owner != nil {
		// Programs reopen /dev/stdout and the like as their own user.
		if err := unix.Fchown(theirs, int(owner.UID), int(owner.GID)); err != nil {
			unix.Close(our)
			return -1, err
		}
	}
	// A new pipe has no other status flags, so overwriting them is safe.
	if _, err := unix.FcntlInt(uintptr(our), unix.F_SETFL, unix.O_NONBLOCK); err != nil {
		unix.Close(our)
		return -1, err
	}
	return our, nil
}

// closeChild closes the process's descriptors, after its start.
func (d *Descriptors) closeChild() {
	for i, fd := range d.child {
		if !slices.Contains(d.child[:i], fd) {
			unix.Close(fd)
		}
	}
	d.child = nil
}

// CloseAll closes every descriptor. It is for a process that does not start.
func (d *Descriptors) CloseAll() {
	d.closeChild()
	for _, f := range d.ours {
		f.Close()
	}
}
