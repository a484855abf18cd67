package contexts

import (
	"encoding/json"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/kernels"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// handleLocked acts on an event of the kernel. The caller holds the
// interpreter's order.
func (x *run) handleLocked(ev *kernels.Event) {
	switch ev.Ev {
	case "result":
		x.send(&guestapi.ExecuteEvent{Result: x.resultLocked(&sandbox.Result{Data: ev.Data, Main: ev.Main})})
	case "error":
		x.mu.Lock()
		again := x.failed
		if !again {
			x.failed, x.failure = true, ev.Name+": "+ev.Value
		}
		x.mu.Unlock()
		if again { // such as of a second callback: only one is kept, so it is output
			x.text(guestapi.Stderr, []byte(strings.TrimSuffix(ev.Traceback, "\n")+"\n"))
			return
		}
		x.send(&guestapi.ExecuteEvent{Error: &guestapi.RunError{
			Name: ev.Name, Value: ev.Value, Traceback: ev.Traceback, Line: ev.Line, Source: ev.Text,
		}})
	case "input":
		x.mu.Lock()
		x.stdin.waiting = true
		x.answerLocked()
		waits := x.stdin.waiting
		x.mu.Unlock()
		if waits {
			x.send(&guestapi.ExecuteEvent{Type: guestapi.ExecuteInput, Prompt: ev.Prompt, Password: ev.Password})
		}
	case "end":
		if len(ev.Result) > 0 {
			x.send(&guestapi.ExecuteEvent{Result: x.resultLocked(&sandbox.Result{Data: ev.Result, Main: true})})
		}
		x.endedLocked(ev)
	}
}

// listen receives the kernel's messages.
func (it *interpreter) listen() {
	rc, err := it.events.SyscallConn()
	if err != nil {
		return
	}
	for {
		over := false
		err := rc.Read(func(fd uintptr) bool {
			it.order.Lock()
			defer it.order.Unlock()
			again, end := it.receiveLocked(int(fd))
			over = end
			return !again
		})
		if err != nil || over {
			return
		}
	}
}

// drainEventsLocked handles the messages in the socket. The caller holds the
// interpreter's order.
func (it *interpreter) drainEventsLocked() {
	rc, err := it.events.SyscallConn()
	if err != nil {
		return
	}
	_ = rc.Control(func(fd uintptr) {
		for {
			if again, end := it.receiveLocked(int(fd)); again || end {
				return
			}
		}
	})
}

// receiveLocked handles one message. If again is set, there was none; if over is
// set, there will be none. The caller holds the interpreter's order.
func (it *interpreter) receiveLocked(fd int) (again, over bool) {
	buf := bufferPool.Get().(*[bufferSize]byte)
	defer bufferPool.Put(buf)
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
	if it.context.program.Fields {
		return false, !it.splitLocked(buf[:n])
	}
	if it.addLocked(buf[:n]) {
		_, _ = unix.Write(fd, []byte{'!'})
	}
	return false, false
}

// addLocked handles a message, and reports whether the kernel waits for an
// answer. The caller holds the interpreter's order.
func (it *interpreter) addLocked(message []byte) (ask bool) {
	ev, ask, err := it.assembler.Add(message)
	if err != nil {
		it.junk++
	}
	if ev != nil {
		it.drainOutputsLocked()
		it.handleLocked(ev)
	}
	return ask
}

// splitLocked handles the messages in data from a pipe, and keeps the beginning
// of one that is not complete. It reports whether valid messages can follow. The
// caller holds the interpreter's order.
func (it *interpreter) splitLocked(data []byte) bool {
	it.partial = append(it.partial, data...)
	rest := it.partial
	for {
		message, n, err := kernels.Next(rest)
		if err != nil {
			it.junk++
			it.partial = nil
			return false
		}
		if n == 0 {
			break
		}
		it.addLocked(message) // a pipe has no answers
		rest = rest[n:]
	}
	it.partial = append(it.partial[:0], rest...)
	return true
}

// handleLocked acts on an event. The caller holds the interpreter's order.
func (it *interpreter) handleLocked(ev *kernels.Event) {
	c := it.context
	ev.Data, ev.Result = cleanData(ev.Data), cleanData(ev.Result)
	if ev.Ev == "ready" {
		c.mu.Lock()
		it.version = cleanVersion(ev.Version)
		run := c.run
		c.mu.Unlock()
		select {
		case <-it.ready:
			if run != nil && run.interpreter == it {
				run.resumed()
			}
		default:
			close(it.ready)
		}
		return
	}
	if ev.Ev == "missing" {
		c.mu.Lock()
		it.missing = ev.Text
		c.mu.Unlock()
		return
	}
	if ev.Ev == "prepared" {
		select {
		case it.prepared <- struct{}{}:
		default:
		}
		return
	}
	if ev.Ev == "late" {
		s := guestapi.Stdout
		if ev.Stream == string(guestapi.Stderr) {
			s = guestapi.Stderr
		}
		c.mu.Lock()
		run := c.run
		if run == nil || run.over {
			c.late.add(s, ev.ID, []byte(ev.Text))
			run = nil
		}
		c.mu.Unlock()
		if run != nil {
			run.send(&guestapi.ExecuteEvent{Type: guestapi.ExecuteLate, Stream: s, Run: ev.ID, Text: ev.Text})
		}
		return
	}
	c.mu.Lock()
	run := c.run
	if run != nil && (run.interpreter != it || run.over) {
		run = nil
	}
	if ev.Ev == "result" && (run == nil || run.id != ev.ID) {
		if run == nil {
			c.late.result(ev)
		}
		c.mu.Unlock()
		if run != nil {
			run.send(&guestapi.ExecuteEvent{Run: max(ev.ID, 1), Result: run.resultLocked(&sandbox.Result{Data: ev.Data, Late: true})})
		}
		return
	}
	c.mu.Unlock()
	if run != nil && run.id == ev.ID {
		run.handleLocked(ev)
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
	for _, b := range []byte(v) {
		if b > ' ' && b < 0x7f && len(out) < 32 {
			out = append(out, b)
		}
	}
	return string(out)
}
