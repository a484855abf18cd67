package sudo

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A terminal is a new terminal for a program, in place of the one that the command
// has. A program of the guest cannot be in the command's session, so it cannot use
// the command's terminal for job control. The command copies between the two.
type terminal struct {
	master *os.File
	slave  int // -1 if it is closed

	changed chan os.Signal
	copied  chan struct{} // closed when all output was copied

	mu    sync.Mutex
	was   *unix.Termios // of the command's terminal, if it was changed
	reads bool          // input is being copied
	over  bool
}

// newTerminal replaces the terminals in fds by a new one, if input and output are
// terminals, and otherwise returns nil. A program that has only one of the two uses
// the command's terminal itself. Other programs of a pipeline use it, too, so the
// command must neither read it nor change its settings.
func newTerminal(fds []int) (*terminal, error) {
	settings, err := unix.IoctlGetTermios(0, unix.TCGETS)
	if err != nil || !isTerminal(1) {
		return nil, nil
	}
	t := &terminal{slave: -1, changed: make(chan os.Signal, 4), copied: make(chan struct{})}
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("make a terminal: %w", err)
	}
	t.master = os.NewFile(uintptr(fd), "/dev/ptmx")
	if err := t.open(fd, settings); err != nil {
		t.master.Close()
		return nil, fmt.Errorf("make a terminal: %w", err)
	}
	for i, fd := range fds {
		if isTerminal(fd) {
			fds[i] = t.slave
		}
	}
	t.size()
	return t, nil
}

func isTerminal(fd int) bool {
	_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	return err == nil
}

// open opens the program's side with the settings of the command's terminal.
func (t *terminal) open(master int, settings *unix.Termios) error {
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return err
	}
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		return err
	}
	if t.slave, err = unix.Open("/dev/pts/"+strconv.Itoa(n), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	return unix.IoctlSetTermios(t.slave, unix.TCSETS, settings)
}

// size gives the program's terminal the size of the command's. It reports whether the
// size changed.
func (t *terminal) size() (changed bool) {
	size, err := unix.IoctlGetWinsize(1, unix.TIOCGWINSZ)
	if err != nil {
		return false
	}
	rc, err := t.master.SyscallConn()
	if err != nil {
		return false
	}
	_ = rc.Control(func(fd uintptr) {
		was, err := unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ)
		changed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, size) == nil && (err != nil || *was != *size)
	})
	return changed
}

// begin copies from now on. The program has its side open. The terminal calls resized
// after each change of its size.
func (t *terminal) begin(resized func()) {
	unix.Close(t.slave)
	t.slave = -1
	signal.Notify(t.changed, unix.SIGWINCH, unix.SIGCONT)
	t.take()
	go func() {
		for range t.changed {
			if t.size() {
				resized()
			}
			t.take()
		}
	}()
	go func() {
		defer close(t.copied)
		buf := make([]byte, 16<<10)
		for {
			n, err := t.master.Read(buf)
			if n > 0 {
				if _, err := os.Stdout.Write(buf[:n]); err != nil {
					return
				}
				t.mu.Lock()
				if t.over {
					t.master.SetReadDeadline(time.Now().Add(maxQuiet))
				}
				t.mu.Unlock()
			}
			if err != nil { // EIO when no program has the terminal open
				return
			}
		}
	}()
}

// take makes the command's terminal pass all input on, and reads it. In the
// background it does nothing, as a shell would stop the command. The command tries
// again when it continues.
func (t *terminal) take() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over || !foreground() {
		return
	}
	now, err := unix.IoctlGetTermios(0, unix.TCGETS)
	if err != nil {
		return
	}
	if t.was == nil {
		t.was = now
	}
	raw := *t.was
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if unix.IoctlSetTermios(0, unix.TCSETS, &raw) != nil || t.reads {
		return
	}
	t.reads = true
	go func() {
		buf := make([]byte, 4<<10)
		for {
			n, err := unix.Read(0, buf)
			if n > 0 {
				if _, err := t.master.Write(buf[:n]); err != nil {
					return
				}
			}
			if err == unix.EINTR {
				continue
			}
			if n <= 0 {
				return
			}
		}
	}()
}

// foreground reports whether this process may read its terminal.
func foreground() bool {
	group, err := unix.IoctlGetInt(0, unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp() // an error: it is not this session's
}

// maxQuiet is how long the output may be silent after the program's end, before it
// counts as complete. A descendant may hold the terminal open.
const maxQuiet = 100 * time.Millisecond

// end copies the rest of the output after the program's end.
func (t *terminal) end() {
	t.mu.Lock()
	t.over = true
	t.master.SetReadDeadline(time.Now().Add(maxQuiet))
	t.mu.Unlock()
	select {
	case <-t.copied:
	case <-time.After(time.Second): // a descendant writes without pause
	}
}

// close gives the command's terminal back.
func (t *terminal) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	if t.was != nil {
		_ = unix.IoctlSetTermios(0, unix.TCSETS, t.was)
		t.was = nil
	}
	if t.slave >= 0 {
		unix.Close(t.slave)
		t.slave = -1
	}
	t.master.Close()
}
