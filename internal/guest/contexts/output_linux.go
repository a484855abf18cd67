package contexts

import (
	"bytes"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/process"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// bufferSize is the size of the buffers for output and messages.
const bufferSize = 128 << 10

// An interpreter that writes a line in pieces gets linePause to write the rest of
// it, up to maxLinePart bytes, so that clients get the line as one.
const (
	linePause   = 20 * time.Millisecond
	maxLinePart = 4 << 10
)

var bufferPool = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// read delivers output until its end. It polls in a thread of its own instead of
// using the runtime's poller. While small output gathers it sleeps, so that no
// write wakes a thread.
func (it *interpreter) read() {
	var last time.Time
	for {
		poll := []unix.PollFd{{Fd: int32(it.quit), Events: unix.POLLIN}}
		it.order.Lock()
		for i := range it.outputs {
			if fd := it.outputs[i].fd; fd >= 0 {
				poll = append(poll, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
			}
		}
		it.order.Unlock()
		wait := -1
		if it.holdsLine() {
			wait = int(linePause / time.Millisecond)
		}
		ready, err := unix.Poll(poll, wait)
		if err == unix.EINTR {
			continue
		}
		if ready == 0 && err == nil {
			it.order.Lock()
			it.deliverLinesLocked(nil)
			it.order.Unlock()
			continue
		}
		if err != nil || poll[0].Revents != 0 {
			break
		}
		n := 0
		it.order.Lock()
		for i := range it.outputs {
			m, over := it.takeLocked(&it.outputs[i])
			if over {
				unix.Close(it.outputs[i].fd)
				it.outputs[i].fd = -1
			}
			n += m
		}
		it.order.Unlock()
		now := time.Now()
		if n < process.FloodRead && now.Sub(last) < process.FloodGap {
			time.Sleep(process.FloodPause)
			now = time.Now()
		}
		last = now
	}
	it.order.Lock()
	defer it.order.Unlock()
	for i := range it.outputs {
		if it.outputs[i].fd >= 0 {
			unix.Close(it.outputs[i].fd)
			it.outputs[i].fd = -1
		}
	}
	unix.Close(it.quit)
}

// takeLocked reads an outlet once and delivers the data. If over is set, the
// outlet has ended. The caller holds the interpreter's order.
func (it *interpreter) takeLocked(o *outlet) (n int, over bool) {
	if o.fd < 0 {
		return 0, false
	}
	buf := bufferPool.Get().(*[bufferSize]byte)
	defer bufferPool.Put(buf)
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
		it.deliverLinesLocked(o)
		whole := it.wholeOutput(data)
		o.part = append(o.part[:0], data[whole:]...)
		if whole > 0 {
			it.deliverLocked(o.stream, data[:whole])
		}
		return n, false
	}
}

// wholeOutput returns the length of the beginning of b that can be delivered now.
func (it *interpreter) wholeOutput(b []byte) int {
	if it.context.program.Pieces() {
		if lines := bytes.LastIndexByte(b, '\n') + 1; len(b)-lines <= maxLinePart {
			return lines
		}
	}
	return wholeText(b)
}

// holdsLine reports whether an outlet keeps an incomplete line.
func (it *interpreter) holdsLine() bool {
	if !it.context.program.Pieces() {
		return false
	}
	it.order.Lock()
	defer it.order.Unlock()
	return slices.ContainsFunc(it.outputs[:], func(o outlet) bool { return o.fd >= 0 && wholeText(o.part) > 0 })
}

// deliverLinesLocked delivers the incomplete lines that takeLocked kept, except
// those of one outlet. The caller holds the interpreter's order.
func (it *interpreter) deliverLinesLocked(except *outlet) {
	for i := range it.outputs {
		o := &it.outputs[i]
		if o == except || len(o.part) == 0 {
			continue
		}
		if whole := wholeText(o.part); whole > 0 {
			it.deliverLocked(o.stream, o.part[:whole])
			o.part = append(o.part[:0], o.part[whole:]...)
		}
	}
}

// flushOutputsLocked delivers the incomplete characters that takeLocked kept.
// The caller holds the interpreter's order.
func (it *interpreter) flushOutputsLocked() {
	for i := range it.outputs {
		if o := &it.outputs[i]; len(o.part) > 0 {
			it.deliverLocked(o.stream, o.part)
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

// drainOutputsLocked delivers everything in the pipes now, with incomplete lines. It
// reads at most the size of a pipe, because a process may write without pause. The
// caller holds the interpreter's order.
func (it *interpreter) drainOutputsLocked() {
	defer it.deliverLinesLocked(nil)
	var poll [2]unix.PollFd
	for i := range it.outputs {
		poll[i] = unix.PollFd{Fd: int32(it.outputs[i].fd), Events: unix.POLLIN}
	}
	// The pipes are usually empty, which costs only this call.
	if n, err := unix.Poll(poll[:], 0); n == 0 && err == nil {
		return
	}
	for i := range it.outputs {
		for total := 0; total < kernelPipe; {
			n, _ := it.takeLocked(&it.outputs[i])
			if n == 0 {
				break
			}
			total += n
		}
	}
}

// deliverLocked hands output to the run under way, or keeps it for the next run.
// The caller holds the interpreter's order.
func (it *interpreter) deliverLocked(s guestapi.Stream, data []byte) {
	if s == guestapi.Stderr {
		it.process.Note(data)
	}
	c := it.context
	c.mu.Lock()
	run := c.run
	if run == nil || run.interpreter != it || run.over {
		c.late.add(s, c.runs, data)
		run = nil
	}
	c.mu.Unlock()
	if run != nil {
		run.text(s, data)
	}
}
