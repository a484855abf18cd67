package guest

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/regular"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const (
	// pictureTime bounds the shrinking of one picture, and of all pictures of a
	// run.
	pictureTime = 10 * time.Second
	// maxRunPreviews bounds the previews of a run.
	maxRunPreviews = 32
)

// Program is argv[0] when the guest executes its own program for a command. A
// program that embeds the guest and is started by this name calls [Main].
const Program = "glovebox-guest"

// The guest makes previews, not the server: a decoder may use any amount of
// memory, and the server is shared by many principals. The decoder runs in a
// process of its own, as the user, because the guest must survive it.

// preview returns the preview of a picture, or nil if models can be shown the
// picture as it is. The error is a [guestapi.WireError] that gives the reason.
// Closing done ends the work.
func (g *Guest) preview(done <-chan struct{}, a *account.Account, mime string, size int64, open func() io.Reader) ([]byte, error) {
	if !sandbox.IsPicture(mime) {
		return nil, previewError(pictureError("it is of the type " + mime))
	}
	h, err := readPictureHeader(open(), mime)
	if err == nil && h.fits(size) {
		return nil, nil
	}
	if err == nil {
		err = h.check()
	}
	if why, ok := errors.AsType[pictureError](err); ok {
		return nil, previewError(why)
	}
	select {
	case g.shrinks <- struct{}{}:
		defer func() { <-g.shrinks }()
	case <-done:
		return nil, previewError("the run ended before it was shrunk")
	}
	return g.shrinkApart(done, a, mime, open())
}

// shrinkApart shrinks a picture in its own process.
func (g *Guest) shrinkApart(done <-chan struct{}, a *account.Account, mime string, src io.Reader) ([]byte, error) {
	pl := &plumbing{}
	to, err := pl.pipe(true)
	if err != nil {
		pl.closeAll()
		return nil, rpc.Exhausted("make pipe", err)
	}
	defer to.Close()
	from, err := pl.pipe(false)
	if err != nil {
		pl.closeAll()
		return nil, rpc.Exhausted("make pipe", err)
	}
	defer from.Close()
	null, err := unix.Open(os.DevNull, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		pl.closeAll()
		return nil, rpc.Exhausted("open "+os.DevNull, err)
	}
	pl.child = append(pl.child, null)
	attr := &syscall.ProcAttr{Dir: "/", Env: []string{"GOMAXPROCS=1"}, Sys: &syscall.SysProcAttr{Setsid: true}}
	for _, fd := range pl.child {
		attr.Files = append(attr.Files, uintptr(fd))
	}
	if !g.cfg.AsSelf {
		attr.Sys.Credential = a.Credential()
	}
	runtime.LockOSThread() // see spawn of processes
	c, err := g.children.start("/proc/self/exe", []string{Program, "picture", mime}, attr, g.beforeFork, g.afterFork)
	runtime.UnlockOSThread()
	pl.closeChild()
	if err != nil {
		return nil, rpc.Exhausted("start a process to shrink it", err)
	}
	late := time.NewTimer(raceFactor * pictureTime)
	defer late.Stop()
	go func() {
		select {
		case <-c.done:
			return
		case <-done:
		case <-late.C:
		}
		_ = g.children.signal(c, unix.SIGKILL, false) // it may have just ended
	}()
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = io.Copy(to, src) // if the copy is incomplete, the process reports it
		to.Close()
	}()
	answer, err := io.ReadAll(io.LimitReader(from, sandbox.MaxPreview+2))
	from.Close() // unblocks a process that still writes
	<-c.done
	<-written
	if err != nil {
		return nil, rpc.Errorf(guestapi.CodeInternal, "read the preview: %v", err)
	}
	return pictureAnswer(c.status, answer)
}

// pictureAnswer decodes the answer of pictureMain.
func pictureAnswer(status unix.WaitStatus, answer []byte) ([]byte, error) {
	switch {
	case !status.Exited() || status.ExitStatus() != 0 || len(answer) < 2:
		return nil, previewError("decoding it takes more memory or time than there is")
	case answer[0] != pictureMade:
		return nil, previewError(pictureError(toText(answer[1:min(len(answer), 200)])))
	case len(answer)-1 > sandbox.MaxPreview:
		return nil, previewError("its preview is too large")
	}
	return answer[1:], nil
}

// previewFile serves GET of PathPreviews.
func (g *Guest) previewFile(w http.ResponseWriter, r *http.Request) {
	data, err := g.readPreview(r)
	if err != nil {
		rpc.WriteError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.Write(data)
}

func (g *Guest) readPreview(r *http.Request) ([]byte, error) {
	a, err := g.filesUser(r)
	if err != nil {
		return nil, err
	}
	name, err := cleanPath(r.URL.Query().Get("path"), a)
	if err != nil {
		return nil, err
	}
	var f *os.File
	err = g.accounts.As(a, func() (err error) {
		// stat before open: opening some devices has an effect.
		var st unix.Stat_t
		if err := unix.Stat(name, &st); err != nil {
			return rpc.FileError(err, name)
		}
		if err := regular.Check(&st, name); err != nil {
			return err
		}
		f, err = regular.Open(name)
		return rpc.FileError(err, name)
	})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, rpc.FileError(err, name)
	}
	open := func() io.Reader { return io.NewSectionReader(f, 0, info.Size()) }
	data, err := g.preview(r.Context().Done(), a, r.URL.Query().Get("type"), info.Size(), open)
	if err != nil || data != nil {
		return data, err
	}
	data, err = io.ReadAll(open())
	return data, rpc.FileError(err, name)
}

// withPreviews adds previews of pictures to a result, if the run's caller asked
// for them. It keeps k.order, so that events stay in order. An interrupt of the
// run ends the wait.
func (x *run) withPreviews(r *guestapi.Result) *guestapi.Result {
	if !x.req.Previews {
		return r
	}
	for mime, value := range r.Data {
		var text string
		if !sandbox.IsPicture(mime) || json.Unmarshal(value, &text) != nil {
			continue
		}
		data, err := x.preview(mime, text)
		if err == nil && data == nil {
			continue // the picture is fit as it is
		}
		p := guestapi.Preview{Data: data}
		if err != nil {
			p.Why = rpc.Wire(err).Message
		}
		if r.Previews == nil {
			r.Previews = make(map[string]guestapi.Preview)
		}
		r.Previews[mime] = p
	}
	return r
}

// preview returns the preview of a base64 picture.
func (x *run) preview(mime, text string) ([]byte, error) {
	if x.previews >= maxRunPreviews || x.previewing >= pictureTime {
		return nil, previewError(pictureError(fmt.Sprintf("the run has %d pictures before it, and no more are shrunk", x.previews)))
	}
	began := time.Now()
	size := int64(base64.StdEncoding.DecodedLen(len(text)))
	open := func() io.Reader { return base64.NewDecoder(base64.StdEncoding, strings.NewReader(text)) }
	data, err := x.e.g.preview(x.hurried, x.e.account, mime, size, open)
	if err != nil || data != nil {
		x.previews++
		x.previewing += time.Since(began)
	}
	return data, err
}

// hurry stops the making of previews, because the run must end. x.mu is held.
func (x *run) hurry() {
	if !x.isHurried {
		x.isHurried = true
		close(x.hurried)
	}
}
