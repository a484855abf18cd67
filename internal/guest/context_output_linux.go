package guest

import (
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/kernels"
)

const (
	// floodRead is the size, in bytes, from which a read of output is worth its
	// wake-up.
	floodRead = 32 << 10
	// floodPause is how long a reader lets output gather after small reads in
	// quick succession. floodGap is the longest interval between such reads.
	floodPause = 500 * time.Microsecond
	floodGap   = time.Millisecond
	// maxLate bounds the output kept between runs, in bytes. The oldest is
	// dropped.
	maxLate = 256 << 10
	// maxLateResults bounds the results kept between runs. Later ones are
	// dropped.
	maxLateResults = 16
)

// An outlet is one of an interpreter's two outputs. Its fields are guarded by
// the interpreter's order.
type outlet struct {
	fd     int // -1 when it has ended
	stream guestapi.Stream
	part   []byte // an incomplete character at the end of the last read
}

// read delivers output until its end. It polls in a thread of its own instead of
// using the runtime's poller. While small output gathers it sleeps, so that no
// write wakes a thread.
func (k *interpreter) read() {
	var last time.Time
	for {
		poll := []unix.PollFd{{Fd: int32(k.quit), Events: unix.POLLIN}}
		k.order.Lock()
		for i := range k.outputs {
			if fd := k.outputs[i].fd; fd >= 0 {
				poll = append(poll, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
			}
		}
		k.order.Unlock()
		_, err := unix.Poll(poll, -1)
		if err == unix.EINTR {
			continue
		}
		if err != nil || poll[0].Revents != 0 {
			break
		}
		n := 0
		k.order.Lock()
		for i := range k.outputs {
			m, over := k.take(&k.outputs[i])
			if over {
				unix.Close(k.outputs[i].fd)
				k.outputs[i].fd = -1
			}
			n += m
		}
		k.order.Unlock()
		now := time.Now()
		if n < floodRead && now.Sub(last) < floodGap {
			time.Sleep(floodPause)
			now = time.Now()
		}
		last = now
	}
	k.order.Lock()
	defer k.order.Unlock()
	for i := range k.outputs {
		if k.outputs[i].fd >= 0 {
			unix.Close(k.outputs[i].fd)
			k.outputs[i].fd = -1
		}
	}
	unix.Close(k.quit)
}

// take reads an outlet once and delivers the data. If over is set, the outlet
// has ended. k.order is held.
func (k *interpreter) take(o *outlet) (n int, over bool) {
	if o.fd < 0 {
		return 0, false
	}
	buf := chunkPool.Get().(*[chunkSize]byte)
	defer chunkPool.Put(buf)
	keep := copy(buf[:], o.part)
	for {
		n, err := unix.Read(o.fd, buf[keep:])
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return 0, false
		case err != nil || n <= 0:
			return 0, true
		}
		data := buf[:keep+n]
		whole := wholeText(data)
		o.part = append(o.part[:0], data[whole:]...)
		if whole > 0 {
			k.deliver(o.stream, data[:whole])
		}
		return n, false
	}
}

// flushOutputs delivers the incomplete characters that take kept. k.order is
// held.
func (k *interpreter) flushOutputs() {
	for i := range k.outputs {
		if o := &k.outputs[i]; len(o.part) > 0 {
			k.deliver(o.stream, o.part)
			o.part = o.part[:0]
		}
	}
}

// wholeText returns the length of b without an incomplete character at its end.
func wholeText(b []byte) int {
	for i := len(b) - 1; i >= 0 && i > len(b)-utf8.UTFMax-1; i-- {
		if utf8.RuneStart(b[i]) {
			if utf8.FullRune(b[i:]) {
				return len(b)
			}
			return i
		}
	}
	return len(b)
}

// drainOutputs delivers everything in the pipes now. It reads at most the size
// of a pipe, because a process may write without pause. k.order is held.
func (k *interpreter) drainOutputs() {
	var poll [2]unix.PollFd
	for i := range k.outputs {
		poll[i] = unix.PollFd{Fd: int32(k.outputs[i].fd), Events: unix.POLLIN}
	}
	// The pipes are usually empty, which costs only this call.
	if n, err := unix.Poll(poll[:], 0); n == 0 && err == nil {
		return
	}
	for i := range k.outputs {
		for total := 0; total < kernelPipe; {
			n, _ := k.take(&k.outputs[i])
			if n == 0 {
				break
			}
			total += n
		}
	}
}

// deliver hands output to the run under way, or keeps it for the next run.
// k.order is held.
func (k *interpreter) deliver(s guestapi.Stream, data []byte) {
	if s == guestapi.Stderr {
		k.p.out.note(data)
	}
	e := k.e
	e.mu.Lock()
	run := e.run
	if run == nil || run.k != k || run.over {
		e.late.add(s, e.runs, data)
		run = nil
	}
	e.mu.Unlock()
	if run != nil {
		run.text(s, data)
	}
}

// note keeps the end of the error output.
func (o *output) note(data []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tail = append(o.tail, data[max(0, len(data)-maxTail):]...)
	o.tail = o.tail[max(0, len(o.tail)-maxTail):]
}

// listen receives the kernel's messages.
func (k *interpreter) listen() {
	rc, err := k.events.SyscallConn()
	if err != nil {
		return
	}
	for {
		over := false
		err := rc.Read(func(fd uintptr) bool {
			k.order.Lock()
			defer k.order.Unlock()
			again, end := k.receive(int(fd))
			over = end
			return !again
		})
		if err != nil || over {
			return
		}
	}
}

// drainEvents handles the messages in the socket. k.order is held.
func (k *interpreter) drainEvents() {
	rc, err := k.events.SyscallConn()
	if err != nil {
		return
	}
	_ = rc.Control(func(fd uintptr) {
		for {
			if again, end := k.receive(int(fd)); again || end {
				return
			}
		}
	})
}

// receive handles one message. If again is set, there was none; if over is set,
// there will be none. k.order is held.
func (k *interpreter) receive(fd int) (again, over bool) {
	buf := chunkPool.Get().(*[chunkSize]byte)
	defer chunkPool.Put(buf)
	n, err := unix.Read(fd, buf[:kernels.MaxMessage])
	switch {
	case err == unix.EINTR:
		return false, false
	case err == unix.EAGAIN:
		return true, false
	case err != nil:
		return false, true
	case n == 0:
		// The end of the socket, or an empty message that user code sent.
		poll := []unix.PollFd{{Fd: int32(fd)}}
		_, err := unix.Poll(poll, 0)
		return false, err == nil && poll[0].Revents&unix.POLLHUP != 0
	}
	ev, ask, err := k.assembler.Add(buf[:n])
	if err != nil {
		k.junk++
	}
	if ev != nil {
		k.drainOutputs()
		k.handle(ev)
	}
	if ask {
		_, _ = unix.Write(fd, []byte{'!'})
	}
	return false, false
}

// handle acts on an event. k.order is held.
func (k *interpreter) handle(ev *kernels.Event) {
	e := k.e
	ev.Data, ev.Result = cleanData(ev.Data), cleanData(ev.Result)
	if ev.Ev == "ready" {
		e.mu.Lock()
		k.version = cleanVersion(ev.Version)
		run := e.run
		e.mu.Unlock()
		select {
		case <-k.ready:
			if run != nil && run.k == k {
				run.resumed()
			}
		default:
			close(k.ready)
		}
		return
	}
	if ev.Ev == "prepared" {
		select {
		case k.prepared <- struct{}{}:
		default:
		}
		return
	}
	if ev.Ev == "late" {
		s := guestapi.Stdout
		if ev.Stream == string(guestapi.Stderr) {
			s = guestapi.Stderr
		}
		e.mu.Lock()
		run := e.run
		if run == nil || run.over {
			e.late.add(s, ev.ID, []byte(ev.Text))
			run = nil
		}
		e.mu.Unlock()
		if run != nil {
			run.send(&guestapi.ExecuteEvent{Type: guestapi.ExecuteLate, Stream: s, Run: ev.ID, Text: ev.Text})
		}
		return
	}
	e.mu.Lock()
	run := e.run
	if run != nil && (run.k != k || run.over) {
		run = nil
	}
	if ev.Ev == "result" && (run == nil || run.id != ev.ID) {
		if run == nil {
			e.late.result(ev)
		}
		e.mu.Unlock()
		if run != nil {
			run.send(&guestapi.ExecuteEvent{Type: guestapi.ExecuteLate, Result: run.withPreviews(&guestapi.Result{Data: ev.Data, Late: max(ev.ID, 1)})})
		}
		return
	}
	e.mu.Unlock()
	if run != nil && run.id == ev.ID {
		run.handle(ev)
	}
}

// maxMIMETypes bounds the MIME types of a result.
const maxMIMETypes = 64

// cleanData deletes keys of a result that are not MIME types, and texts and
// pictures that are not strings. User code can make the kernel send anything.
func cleanData(data map[string]json.RawMessage) map[string]json.RawMessage {
	for mime, value := range data {
		kind, _, ok := strings.Cut(mime, "/")
		textual := kind == "text" || kind == "image" || mime == "application/pdf"
		if !ok || len(mime) > 128 || len(value) == 0 || textual && value[0] != '"' || len(data) > maxMIMETypes {
			delete(data, mime)
		}
	}
	return data
}

// cleanVersion returns the printable ASCII of a kernel's version, bounded.
func cleanVersion(v string) string {
	out := make([]byte, 0, 32)
	for _, c := range []byte(v) {
		if c > ' ' && c < 0x7f && len(out) < 32 {
			out = append(out, c)
		}
	}
	return string(out)
}

// lateOutput is output and results that came while no run was under way.
type lateOutput struct {
	pieces  []latePiece
	bytes   int
	dropped int64
	results []*kernels.Event
}

type latePiece struct {
	stream guestapi.Stream
	run    int
	data   []byte
}

// add keeps a copy of data, and drops the oldest output beyond maxLate.
func (l *lateOutput) add(s guestapi.Stream, run int, data []byte) {
	if over := len(data) - maxLate; over > 0 {
		l.dropped += int64(over)
		data = data[over:]
	}
	if n := len(l.pieces); n > 0 && l.pieces[n-1].stream == s && l.pieces[n-1].run == run && len(l.pieces[n-1].data) < 32<<10 {
		l.pieces[n-1].data = append(l.pieces[n-1].data, data...)
	} else {
		l.pieces = append(l.pieces, latePiece{s, run, append([]byte(nil), data...)})
	}
	l.bytes += len(data)
	for l.bytes > maxLate && len(l.pieces) > 1 {
		l.bytes -= len(l.pieces[0].data)
		l.dropped += int64(len(l.pieces[0].data))
		l.pieces = l.pieces[1:]
	}
}

// result keeps a result, unless maxLateResults are kept already.
func (l *lateOutput) result(ev *kernels.Event) {
	if len(l.results) < maxLateResults {
		l.results = append(l.results, ev)
	}
}
