package picture

import (
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/process"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Maker makes previews of pictures, one at a time. Its methods are safe for
// concurrent use.
//
// The guest makes previews, not the server: a decoder may use any amount of
// memory, and the server is shared by many principals. The decoder runs in a
// process of its own, as the user, because the guest must survive it.
type Maker struct {
	start Start
	busy  chan struct{} // has a value while a preview process runs
}

// Start starts the program's command that calls [Main] with args, as a user.
type Start func(args, env []string, a *account.Account, d *process.Descriptors) (*process.Child, error)

// NewMaker returns a maker that starts its processes with start.
func NewMaker(start Start) *Maker { return &Maker{start: start, busy: make(chan struct{}, 1)} }

// Preview returns the preview of a picture, or nil if models can be shown the
// picture as it is. The error is a [guestapi.WireError] that gives the reason.
// Closing done ends the work.
func (m *Maker) Preview(done <-chan struct{}, a *account.Account, mime string, size int64, open func() io.Reader) ([]byte, error) {
	if !sandbox.IsPicture(mime) {
		return nil, asWire(refusal("it is of the type " + mime))
	}
	h, err := readHeader(open(), mime)
	if err == nil && h.fits(size) {
		return nil, nil
	}
	if err == nil {
		err = h.check()
	}
	if why, ok := errors.AsType[refusal](err); ok {
		return nil, asWire(why)
	}
	return m.workApart(done, a, []string{mime}, open(), sandbox.MaxPreview)
}

// workApart runs [Main] in a process of its own, when no other such process runs,
// and returns the picture of at most limit bytes that it makes.
func (m *Maker) workApart(done <-chan struct{}, a *account.Account, args []string, src io.Reader, limit int) ([]byte, error) {
	select {
	case m.busy <- struct{}{}:
		defer func() { <-m.busy }()
	case <-done:
		return nil, asWire("the run ended before it was shrunk")
	}
	d := new(process.Descriptors)
	to, err := d.AddPipe(true)
	if err != nil {
		d.CloseAll()
		return nil, rpc.Exhausted("make pipe", err)
	}
	defer to.Close()
	from, err := d.AddPipe(false)
	if err != nil {
		d.CloseAll()
		return nil, rpc.Exhausted("make pipe", err)
	}
	defer from.Close()
	if err := d.AddNull(unix.O_WRONLY); err != nil {
		d.CloseAll()
		return nil, rpc.Exhausted("open "+os.DevNull, err)
	}
	// In a program with cgo, glibc reserves up to 128 MiB of addresses when another
	// thread first allocates. That is all that the limit of addresses leaves.
	c, err := m.start(args, []string{"GOMAXPROCS=1", "MALLOC_ARENA_MAX=1"}, a, d)
	if err != nil {
		return nil, rpc.Exhausted("start a process to shrink it", err)
	}
	late := time.NewTimer(raceFactor * maxTime)
	defer late.Stop()
	go func() {
		select {
		case <-c.Done():
			return
		case <-done:
		case <-late.C:
		}
		c.Kill() // it may have just ended
	}()
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = io.Copy(to, src) // if the copy is incomplete, the process reports it
		to.Close()
	}()
	answer, err := io.ReadAll(io.LimitReader(from, int64(limit)+2))
	from.Close() // unblocks a process that still writes
	<-c.Done()
	<-written
	if err != nil {
		return nil, rpc.Errorf(guestapi.CodeInternal, "read the preview: %v", err)
	}
	return decodeAnswer(c.Status(), answer, limit)
}

// decodeAnswer decodes the answer of Main, with a picture of at most limit bytes.
func decodeAnswer(status unix.WaitStatus, answer []byte, limit int) ([]byte, error) {
	switch {
	case !status.Exited() || status.ExitStatus() != 0 || len(answer) < 2:
		return nil, asWire("decoding it takes more memory or time than there is")
	case answer[0] != made:
		return nil, asWire(refusal(strings.ToValidUTF8(string(answer[1:min(len(answer), 200)]), "\uFFFD")))
	case len(answer)-1 > limit:
		return nil, asWire("its preview is too large")
	}
	return answer[1:], nil
}

// asWire returns the error that is answered for a reason.
func asWire(why refusal) error {
	return rpc.Errorf(guestapi.CodeInvalidArgument, "%s", string(why))
}
