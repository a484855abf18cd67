// Package replay plays recordings of terminals, in the form asciicast v2, on a terminal.
//
// The command line imports it. [Play] reads a recording as it plays it. Whoever wrote a
// recording is not trusted: [Filter] keeps what draws, and removes what commands the
// terminal or asks it for an answer, which a shell would take for typed keys.
package replay

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Options say how a recording is played.
type Options struct {
	// Speed divides the times between outputs; 2 is twice as fast.
	Speed float64
	// IdleLimit bounds the time between two outputs, before Speed; 0 is no bound.
	IdleLimit time.Duration
	// Raw writes the recorded bytes, without a filter.
	Raw bool
	// Began, if not nil, is called before the first output.
	Began func(Head)
	// Sleep waits, or returns the context's error.
	Sleep func(context.Context, time.Duration) error
}

// A Head is the first line of a recording.
type Head struct {
	Version int    `json:"version"`
	Width   int    `json:"width"`
	Height  int    `json:"height"`
	Title   string `json:"title"`
}

// maxLine bounds a line of a recording, in bytes.
const maxLine = 16 << 20

// errForm says that a file is no recording.
func errForm(line int, text string) error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "recording: line %d %s", line, text),
		"give a recording in the form asciicast v2, such as the dashboard saves")
}

// Play plays a recording from r on the terminal that w writes to, and then gives the
// terminal its usual colours, cursor and screen again. The error wraps
// [sandbox.Invalid] if r has no recording.
func Play(ctx context.Context, r io.Reader, w io.Writer, o Options) (err error) {
	lines := bufio.NewReaderSize(r, 64<<10)
	text, err := readLine(lines)
	if err != nil && err != io.EOF {
		return lineError(1, err)
	}
	var head Head
	if json.Unmarshal(text, &head) != nil {
		return errForm(1, "is not the head of a recording")
	}
	if head.Version != 2 {
		return errForm(1, "is the head of another version")
	}
	if o.Began != nil {
		o.Began(head)
	}
	out := &player{w: w, raw: o.Raw}
	defer func() { err = errors.Join(err, out.close()) }()
	var at time.Duration
	for n := 2; ; n++ {
		text, err := readLine(lines)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return lineError(n, err)
		}
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		e, ok := eventOf(text)
		if !ok {
			return errForm(n, "is no event, which is a list of a time, a kind and a text")
		}
		if e.kind != "o" {
			continue // input, marks and sizes draw nothing
		}
		pause := max(0, e.at-at)
		at = max(at, e.at)
		if o.IdleLimit > 0 {
			pause = min(pause, o.IdleLimit)
		}
		if pause = time.Duration(float64(pause) / o.Speed); pause > 0 {
			if err := o.Sleep(ctx, pause); err != nil {
				return err
			}
		}
		if err := out.write(e.data); err != nil {
			return err
		}
	}
}

var errLong = errors.New("the line is too long")

// readLine returns the next line. The error is [io.EOF] after the last one.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxLine:
			return nil, errLong
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		default:
			return line, err
		}
	}
}

func lineError(n int, err error) error {
	if errors.Is(err, errLong) {
		return errForm(n, "has more than 16 MiB")
	}
	return sandbox.Wrap(err, "read recording", "")
}

// An event is a line of a recording after the head.
type event struct {
	at   time.Duration // since the beginning
	kind string
	data []byte
}

// maxTime bounds the time of an event, in seconds. Longer recordings are no recordings.
const maxTime = 1e8

func eventOf(line []byte) (event, bool) {
	var parts []json.RawMessage
	var at float64
	var e event
	var data string
	if json.Unmarshal(line, &parts) != nil || len(parts) != 3 || json.Unmarshal(parts[0], &at) != nil || json.Unmarshal(parts[1], &e.kind) != nil ||
		json.Unmarshal(parts[2], &data) != nil || math.IsNaN(at) || at < 0 || at > maxTime {
		return event{}, false
	}
	e.at, e.data = time.Duration(at*float64(time.Second)), []byte(data)
	return e, true
}

// usual gives a terminal its usual state again: the main screen, all modes and margins,
// no attributes, and a cursor.
const usual = "\x1b[?1049l\x1b[!p\x1b[?5l\x1b[?2026l\x1b[?6l\x1b[?7h\x1b[4l\x1b[r\x1b[0m\x1b[?25h"

// A player writes outputs to a terminal.
type player struct {
	w     io.Writer
	raw   bool
	rest  []byte // of a sequence that the last output cut
	drawn bool   // a sequence was written
}

func (p *player) write(data []byte) error {
	if !p.raw {
		all := append(p.rest, data...)
		kept, used := Filter(all)
		if p.rest = bytes.Clone(all[used:]); len(p.rest) > maxHeld {
			p.rest = nil // it draws nothing
		}
		data = kept
	}
	p.drawn = p.drawn || bytes.IndexByte(data, 0x1b) >= 0
	_, err := p.w.Write(data)
	return err
}

func (p *player) close() error {
	if !p.drawn {
		return nil
	}
	_, err := io.WriteString(p.w, usual)
	return err
}
