package process

import (
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// An input is the input of a process.
type input struct {
	turn chan struct{} // has a value while no caller writes
	f    *os.File
	// quit is closed with the input, and ends the wait for a turn.
	quit   chan struct{}
	shared bool // f is a terminal, which its reader closes
	once   sync.Once
}

func newInput(f *os.File) *input {
	in := &input{turn: make(chan struct{}, 1), f: f, quit: make(chan struct{})}
	in.turn <- struct{}{}
	return in
}

var errInputClosed = rpc.Errorf(guestapi.CodeFailedPrecondition, "the process's input is closed")

// write writes all of data in one piece, unless done is closed first.
func (in *input) write(done <-chan struct{}, data []byte) error {
	select {
	case <-in.turn:
	case <-in.quit:
		return errInputClosed
	case <-done:
		return rpc.Errorf(guestapi.CodeCanceled, "the caller left before its input was written")
	}
	defer func() { in.turn <- struct{}{} }()
	stop := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-done:
			in.f.SetWriteDeadline(time.Unix(1, 0))
		case <-stop:
		}
	}()
	n, err := in.f.Write(data)
	close(stop)
	<-stopped
	select {
	case <-in.quit:
		if err != nil {
			return errInputClosed
		}
	default:
		in.f.SetWriteDeadline(time.Time{})
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return rpc.Errorf(guestapi.CodeCanceled, "the caller left after %d of %d bytes of input", n, len(data))
	case errors.Is(err, os.ErrClosed):
		return errInputClosed
	case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EIO):
		return rpc.Errorf(guestapi.CodeFailedPrecondition, "the process does not read its input any more")
	}
	return rpc.Errorf(guestapi.CodeInternal, "write input: %v", err)
}

// close closes the input; a write under way fails.
func (in *input) close() {
	in.once.Do(func() {
		close(in.quit)
		if in.shared {
			in.f.SetWriteDeadline(time.Unix(1, 0))
		} else {
			in.f.Close()
		}
	})
}
