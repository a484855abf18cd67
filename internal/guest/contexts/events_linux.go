package contexts

import (
	"bytes"
	"time"
	"unicode/utf8"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// maxUnsent bounds the unsent events of a run.
const maxUnsent = 1 << 20

// text sends output as events.
func (x *run) text(s guestapi.Stream, data []byte) {
	if !utf8.Valid(data) {
		data = bytes.ToValidUTF8(data, []byte("\uFFFD"))
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.roomLocked() {
		return
	}
	now := time.Now()
	for _, part := range x.parts(data) {
		x.unsent = guestapi.AppendTextEvent(x.unsent, guestapi.ExecuteType(s), part, now)
	}
	x.wake()
}

// parts divides output into the texts of events. E2B's kernel of Java sends the
// end of a printed line as an event of its own, and programs compare the first
// event of a run with their line.
func (x *run) parts(data []byte) [][]byte {
	n := len(data) - 1
	if !x.e2b || !x.context.program.EndsApart() || n < 1 || data[n] != '\n' {
		return [][]byte{data}
	}
	return [][]byte{data[:n], data[n:]}
}

// send sends an event.
func (x *run) send(ev *guestapi.ExecuteEvent) {
	b, err := guestapi.AppendExecuteEvent(nil, ev)
	if err != nil {
		// The kernel's JSON was checked when it arrived, so this is a bug in the
		// guest.
		b, _ = guestapi.AppendExecuteEvent(nil, &guestapi.ExecuteEvent{Type: guestapi.ExecuteNotice, Text: "an event was lost: " + err.Error()})
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.roomLocked() {
		return
	}
	x.unsent = append(x.unsent, b...)
	x.wake()
}

// roomLocked waits until there is room for an event, and returns false if the
// caller is gone. An event of any size has room below maxUnsent. The caller
// holds x.mu.
func (x *run) roomLocked() bool {
	for !x.gone && !x.killed && len(x.unsent) > maxUnsent {
		x.space.Wait()
	}
	return !x.gone
}

func (x *run) wake() {
	select {
	case x.news <- struct{}{}:
	default:
	}
}
