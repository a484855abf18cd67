package process

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/procfs"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// newTerminal makes a terminal for a run of a.
func newTerminal(p *epoller, a *account.Account, size *guestapi.PTYSize) (*plumbing, error) {
	pl := new(plumbing)
	fail := func(what string, err error) (*plumbing, error) {
		pl.closeAll()
		return nil, rpc.Exhausted(what, err)
	}
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fail("open /dev/ptmx", err)
	}
	pl.terminal = os.NewFile(uintptr(fd), "/dev/ptmx")
	pl.AddOurs(pl.terminal)
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return fail("unlock terminal", err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return fail("name terminal", err)
	}
	name := "/dev/pts/" + strconv.Itoa(n)
	slave, err := unix.Open(name, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail("open "+name, err)
	}
	pl.child = []int{slave, slave, slave}
	if int(a.UID) != os.Geteuid() {
		if err := unix.Fchown(slave, int(a.UID), int(a.GID)); err != nil {
			return fail("hand over terminal", err)
		}
	}
	if size != nil {
		if _, err := setSize(pl.terminal, *size); err != nil {
			pl.closeAll()
			return nil, err
		}
	}
	// A second descriptor for reading, as the first is written as an os.File.
	reader, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fail("open terminal again", err)
	}
	if err := pl.source(p, reader, guestapi.Terminal); err != nil {
		return fail("watch terminal", err)
	}
	pl.sources[0].from.shared = true
	pl.sources[0].master = pl.terminal
	pl.stdin = newInput(pl.terminal)
	pl.stdin.shared = true
	return pl, nil
}

// setSize sets the size of a terminal. It reports whether the size changed.
func setSize(f *os.File, size guestapi.PTYSize) (changed bool, err error) {
	const most = 1<<16 - 1
	if size.Cols > most || size.Rows > most {
		return false, rpc.Errorf(guestapi.CodeInvalidArgument, "a terminal of %d by %d is too large", size.Cols, size.Rows)
	}
	rc, err := f.SyscallConn()
	if err != nil {
		return false, err
	}
	var set error
	err = rc.Control(func(fd uintptr) {
		want := &unix.Winsize{Row: uint16(size.Rows), Col: uint16(size.Cols)}
		was, err := unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ)
		changed = err != nil || was.Row != want.Row || was.Col != want.Col
		set = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, want)
	})
	return changed, errors.Join(err, set)
}

// tellSize sends SIGWINCH to the session with the given leader, whose terminal has a new
// size. Linux sends it to the foreground group. gVisor sends it to no process, shows no
// process's terminal, and tells only the session itself which group is in the foreground.
// So all processes of the session get the signal, which the others ignore by default.
func (ts *trees) tellSize(leader int) {
	all, err := procfs.All()
	if err != nil {
		return // programs keep the size that they know, and run
	}
	for _, d := range procfs.Descendants(all, ts.pid) {
		if d.SID == leader && d.TTY == 0 && !d.Dead() {
			_ = unix.Kill(d.PID, unix.SIGWINCH) // it may have ended
		}
	}
}

// TellSize tells the programs in the session of c, a delegate, that the size of their
// terminal has changed.
func (s *Set) TellSize(c *Child) { s.trees.tellSize(c.pid) }
