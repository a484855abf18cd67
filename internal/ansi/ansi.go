// Package ansi turns output for a terminal into the text that a reader of the terminal
// would see. It removes control sequences, and lines that were overwritten.
//
// Packages engine/excerpt, mcpserver, dashboard and cli/replay import it. It is pure, takes time and memory
// in proportion to its input, and accepts any bytes. It knows one line at a time:
// sequences that move the cursor to another line are removed without effect.
package ansi

import "bytes"

const esc = 0x1b

// Sequence returns the length of the control sequence at the beginning of p, or 0 if
// there is none. whole is false if p ends within the sequence. No sequence has a
// carriage return or a line feed: a terminal ends the sequence there, too.
func Sequence(p []byte) (n int, whole bool) {
	var kind byte
	switch {
	case len(p) > 0 && p[0] == esc:
		if len(p) == 1 {
			return 1, false
		}
		kind = p[1]
	case len(p) > 1 && p[0] == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f:
		kind = p[1] - 0x40 // a control character of two bytes in UTF-8 stands for ESC and this
	default:
		return 0, true
	}
	switch {
	case kind == '[':
		return params(p)
	case kind == ']' || kind == 'P' || kind == 'X' || kind == '^' || kind == '_':
		return text(p)
	case kind >= ' ' && kind <= '/':
		for n = 2; n < len(p) && p[n] >= ' ' && p[n] <= '/'; n++ {
		}
		if n == len(p) {
			return n, false
		}
		if p[n] >= '0' && p[n] <= '~' {
			n++
		}
		return n, true
	case kind >= '0' && kind <= '~':
		return 2, true
	}
	return 1, true // ESC, and a character that belongs to no sequence
}

// params returns the length of a sequence that begins with CSI: parameters,
// intermediate characters, and a final one.
func params(p []byte) (n int, whole bool) {
	for n = 2; n < len(p); n++ {
		switch c := p[n]; {
		case c >= '@' && c <= '~':
			return n + 1, true
		case c < ' ' || c > '~':
			return n, true // the sequence is broken
		}
	}
	return n, false
}

// text returns the length of a sequence that contains text, such as a title or a link:
// up to BEL, ST, or another control character, which breaks it.
func text(p []byte) (n int, whole bool) {
	for n = 2; n < len(p); n++ {
		switch c := p[n]; {
		case c == '\a':
			return n + 1, true
		case c == esc && n+1 == len(p), c == 0xc2 && n+1 == len(p):
			return len(p), false
		case c == esc && p[n+1] == '\\', c == 0xc2 && p[n+1] == 0x9c:
			return n + 2, true
		case c < ' ' && c != '\t':
			return n, true
		}
	}
	return n, false
}

// Visible returns the part of a line that stays visible after its carriage returns,
// without its line end. The part may have control sequences, which are not visible.
func Visible(line []byte) (from, to int) {
	end := len(bytes.TrimRight(line, "\r\n"))
	if bytes.IndexByte(line[:end], esc) < 0 && bytes.IndexByte(line[:end], 0xc2) < 0 {
		return bytes.LastIndexByte(line[:end], '\r') + 1, end
	}
	start, seen := 0, false // of the text since the cursor was in the first column
	for i := 0; i < end; {
		n, _ := Sequence(line[i:end])
		first, erased := line[i] == '\r', false
		if n > 0 {
			first, erased = effect(line[i : i+n])
		}
		if (first || erased) && seen {
			from, to = start, i
		}
		switch {
		case first:
			start, seen = i+max(n, 1), false
		case n == 0:
			seen = true
		}
		n = max(n, 1)
		if erased && (first || !seen) {
			from, to = i+n, i+n
		}
		i += n
	}
	if seen {
		return start, end
	}
	return from, to
}

// effect reports whether a sequence is followed by text in the first column, and
// whether it erases what the line has from the cursor on. Erasing the whole line is
// taken for both, because programs then write the line again.
func effect(sequence []byte) (first, erased bool) {
	switch string(bytes.TrimPrefix(bytes.TrimPrefix(sequence, []byte("\x1b[")), []byte("\u009b"))) {
	case "G", "0G", "1G":
		return true, false
	case "2K":
		return true, true
	case "K", "0K":
		return false, true
	}
	return false, false
}

// Strip returns p without control sequences. It may return p itself.
func Strip(p []byte) []byte {
	if bytes.IndexByte(p, esc) < 0 && bytes.IndexByte(p, 0xc2) < 0 {
		return p
	}
	out := make([]byte, 0, len(p))
	for i := 0; i < len(p); {
		if n, _ := Sequence(p[i:]); n > 0 {
			i += n
			continue
		}
		out = append(out, p[i])
		i++
	}
	return out
}

// Text returns the text that is visible of p. Each line ends with a line feed, except
// the last if it has none.
func Text(p []byte) []byte {
	if bytes.IndexByte(p, esc) < 0 && bytes.IndexByte(p, '\r') < 0 && bytes.IndexByte(p, 0xc2) < 0 {
		return p
	}
	out := make([]byte, 0, len(p))
	for len(p) > 0 {
		line, end := p, []byte(nil)
		if i := bytes.IndexByte(p, '\n'); i >= 0 {
			line, end = p[:i+1], p[i:i+1]
		}
		from, to := Visible(line)
		out = append(append(out, Strip(line[from:to])...), end...)
		p = p[len(line):]
	}
	return out
}

// maxHeld bounds a sequence that Whole holds back, in bytes.
const maxHeld = 4 << 10

// Whole returns the length of p without a control sequence that p ends within. A
// sequence that is longer than 4 KiB, or is all of p, counts as whole.
func Whole(p []byte) int {
	for i := 0; i < len(p); {
		n, whole := Sequence(p[i:])
		if !whole && i > 0 && n <= maxHeld {
			return i
		}
		i += max(n, 1)
	}
	return len(p)
}
