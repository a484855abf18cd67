package excerpt

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/glovebox-dev/glovebox/internal/ansi"
)

const (
	// leastWindow is the least number of bytes to read of each end of a stream.
	// It is large so that a long progress bar collapses to its last state.
	leastWindow = 1 << 20
	// leastSplit is the least budget, in bytes, that is divided between head
	// and tail.
	leastSplit = 256
	// markerSize bounds the length of the marker between them.
	markerSize = 64
)

// A Stream is the kept output of one stream of a run.
type Stream struct {
	// Read reads n bytes at an offset; it never reads across the gap.
	Read func(offset, n int64) ([]byte, error)
	// Total counts all bytes. Those from GapFrom to GapTo were dropped.
	Total, GapFrom, GapTo int64
}

// Shorten returns the stream shortened to n bytes: the whole stream if it fits,
// or its head and its tail with a marker between them. A line that carriage
// returns overwrote counts only in its last state, and control sequences of a terminal
// do not count. Bytes that are not UTF-8
// become U+FFFD, and no character is split. from is the offset of the first byte
// that is not shown, or the length of the stream; omitted counts the bytes of the
// stream between head and tail.
func (s Stream) Shorten(n int) (text string, from, omitted int64, err error) {
	window := int64(max(leastWindow, 4*n))
	whole := s.GapFrom == s.GapTo
	if whole && s.Total <= 2*window {
		all, err := s.Read(0, s.Total)
		if err != nil {
			return "", 0, 0, err
		}
		if text, used := takeHead(all, n, true); used == len(all) {
			return text, s.Total, 0, nil
		}
		text, from, omitted = headAndTail(all, all, s.Total, n)
		return text, from, omitted, nil
	}
	headEnd := min(window, s.Total)
	tailStart := max(s.Total-window, 0)
	if !whole {
		headEnd, tailStart = min(headEnd, s.GapFrom), max(tailStart, s.GapTo)
	}
	head, err := s.Read(0, headEnd)
	if err != nil {
		return "", 0, 0, err
	}
	tail, err := s.Read(tailStart, s.Total-tailStart)
	if err != nil {
		return "", 0, 0, err
	}
	text, from, omitted = headAndTail(head, tail, s.Total, n)
	return text, from, omitted, nil
}

// headAndTail returns an excerpt of a stream of total bytes, which begins with
// head and ends with tail. head and tail may overlap; the overlap is shown
// once. from and omitted are those of Shorten.
func headAndTail(head, tail []byte, total int64, n int) (text string, from, omitted int64) {
	if n < leastSplit {
		text, used := takeTail(tail, n)
		return text, 0, total - int64(used)
	}
	n -= markerSize
	first, used := takeHead(head, n/2, false)
	if rest := total - int64(used); rest < int64(len(tail)) {
		tail = tail[int64(len(tail))-rest:]
	}
	last, usedLast := takeTail(tail, n-len(first))
	omitted = total - int64(used) - int64(usedLast)
	if omitted == 0 {
		return first + last, total, 0
	}
	var b strings.Builder
	b.WriteString(first)
	if first != "" && !strings.HasSuffix(first, "\n") {
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "[... %d bytes omitted ...]\n", omitted)
	b.WriteString(last)
	return b.String(), int64(used), omitted
}

// takeHead renders the beginning of p in at most n bytes, and returns how many
// bytes of p it covers. whole means that p is the whole stream: an incomplete
// character at its end is then broken, not cut off.
func takeHead(p []byte, n int, whole bool) (string, int) {
	var b strings.Builder
	used := 0
	for used < len(p) {
		line := FirstLine(p[used:])
		from, to := ansi.Visible(line)
		taken, before := 0, b.Len() // bytes of the visible part, and of the text so far
		stop := func() (string, int) {
			if b.Len() == before {
				return b.String(), used // nothing of the line is shown
			}
			return b.String(), used + from + taken
		}
		for from+taken < to {
			at := line[from+taken : to]
			if n, ended := ansi.Sequence(at); n > 0 {
				if !ended && !whole && to == len(line) {
					return stop()
				}
				taken += n
				continue
			}
			if !whole && to == len(line) && !utf8.FullRune(at) {
				return stop()
			}
			r, size := utf8.DecodeRune(at)
			if b.Len()+utf8.RuneLen(r) > n {
				return stop()
			}
			b.WriteRune(r)
			taken += size
		}
		if bytes.HasSuffix(line, []byte("\n")) {
			if b.Len()+1 > n {
				return stop()
			}
			b.WriteByte('\n')
		}
		used += len(line)
	}
	return b.String(), used
}

// takeTail renders the end of p in at most n bytes, and returns how many bytes
// of p it covers.
func takeTail(p []byte, n int) (string, int) {
	var parts []string // last first
	used, size := 0, 0
	for used < len(p) {
		rest := p[:len(p)-used]
		start := bytes.LastIndexByte(bytes.TrimSuffix(rest, []byte("\n")), '\n') + 1
		line := rest[start:]
		from, to := ansi.Visible(line)
		newline := ""
		if bytes.HasSuffix(line, []byte("\n")) {
			newline = "\n"
		}
		text, taken := takeEnd(line[from:to], n-size-len(newline), start == 0)
		if size+len(newline)+len(text) > n || taken < to-from {
			if taken > 0 {
				parts = append(parts, newline, text)
				used += len(line) - (to - taken)
			}
			break
		}
		parts = append(parts, newline, text)
		size += len(newline) + len(text)
		used += len(line)
	}
	var b strings.Builder
	for i := len(parts) - 1; i >= 0; i-- {
		b.WriteString(parts[i])
	}
	return b.String(), used
}

// takeEnd renders the end of p, which has no newline, in at most n bytes. It
// returns how many bytes of p it covers. cut means that p may begin within a
// character.
func takeEnd(p []byte, n int, cut bool) (string, int) {
	if cut {
		// The rest of a character that began before p is not a character.
		for i := 0; i < min(utf8.UTFMax-1, len(p)) && !utf8.RuneStart(p[0]); i++ {
			p = p[1:]
		}
	}
	sequences := sequencesOf(p)
	var size, taken int
	for taken < len(p) {
		if last := len(sequences) - 1; last >= 0 && sequences[last].to == len(p)-taken {
			taken += sequences[last].to - sequences[last].from
			sequences = sequences[:last]
			continue
		}
		r, width := utf8.DecodeLastRune(p[:len(p)-taken])
		if size+utf8.RuneLen(r) > n {
			break
		}
		size += utf8.RuneLen(r)
		taken += width
	}
	return render(ansi.Strip(p[len(p)-taken:])), taken
}

// A span is a part of a line.
type span struct{ from, to int }

// sequencesOf returns the control sequences of a line.
func sequencesOf(p []byte) (all []span) {
	for i := 0; i < len(p); {
		n, _ := ansi.Sequence(p[i:])
		if n > 0 {
			all = append(all, span{i, i + n})
		}
		i += max(n, 1)
	}
	return all
}

// render returns p with every byte that is not UTF-8 replaced by U+FFFD.
func render(p []byte) string {
	if utf8.Valid(p) {
		return string(p)
	}
	return string([]rune(string(p)))
}
