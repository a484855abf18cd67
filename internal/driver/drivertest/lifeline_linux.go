package drivertest

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"
)

// A lifeline tells when a process and all that descend from it have ended: they
// hold one end of a pipe, and it the other.
type lifeline struct{ near, far *os.File }

// Where a process finds its end, and where it keeps it: above all the files
// that programs give their children on purpose.
const (
	lifelineGiven = 3
	lifelineKept  = 200
)

// tie makes the lifeline of cmd, which is about to be started.
func tie(cmd *exec.Cmd) (*lifeline, error) {
	near, far, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.ExtraFiles = []*os.File{far}
	return &lifeline{near, far}, nil
}

// started lets go of the end that the process has.
func (l *lifeline) started() { l.far.Close() }

// holdLifeline has this process keep its end, and whatever it starts inherit it.
func holdLifeline() error {
	if _, err := unix.FcntlInt(lifelineGiven, unix.F_DUPFD, lifelineKept); err != nil {
		return err
	}
	return unix.Close(lifelineGiven)
}

// cut waits until none of the processes is left, but not longer than limit, and
// reports whether that came to be.
func (l *lifeline) cut(limit time.Duration) bool {
	if err := l.near.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return false
	}
	_, err := l.near.Read(make([]byte, 1))
	return errors.Is(err, io.EOF)
}

func (l *lifeline) close() {
	l.near.Close()
	l.far.Close()
}
