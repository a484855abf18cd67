package contexts

import (
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/kernels"
)

// Bounds on the output and the results that come between runs.
const (
	// maxLate bounds the output kept, in bytes. The oldest is dropped.
	maxLate = 256 << 10
	// maxLateResults bounds the results kept. Later ones are dropped.
	maxLateResults = 16
)

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
