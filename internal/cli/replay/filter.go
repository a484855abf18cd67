package replay

import (
	"bytes"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/ansi"
)

// maxHeld bounds a sequence that goes on in the next output, in bytes.
const maxHeld = 64 << 10

// The final characters of control sequences that draw: they move the cursor, erase,
// insert, delete, scroll, set tab stops, margins and attributes, or repeat a character.
const drawing = "@ABCDEFGHIJKLMPSTXZ`abdefgmrsu"

// modes are the numbers of the modes that a sequence may set or reset. Modes of keys and
// colours are not among them. A mode with a mark is private.
var modes = map[string]bool{"4": true, "?5": true, "?6": true, "?7": true, "?25": true, "?47": true, "?1047": true, "?1048": true, "?1049": true, "?2026": true}

// Escape sequences of one character that draw, and sequences that choose a character
// set.
const (
	escapes  = "78DEHM"
	sets     = "()*+"
	charsets = "0AB"
)

// controls are the control characters that are kept.
const controls = "\a\b\t\n\v\f\r\x0e\x0f"

// Filter returns what of an output draws, and how much of it was used: a sequence that
// the output ends within is not. Titles, links, pictures, the clipboard, notices, modes
// of keys and mice, and questions to the terminal are removed.
func Filter(p []byte) (kept []byte, used int) {
	kept = make([]byte, 0, len(p))
	for i := 0; i < len(p); {
		n, whole := ansi.Sequence(p[i:])
		switch {
		case !whole, n == 0 && p[i] == 0xc2 && i+1 == len(p):
			return kept, i
		case n > 0:
			if draws(p[i : i+n]) {
				kept = append(kept, p[i:i+n]...)
			}
			i += n
		default:
			if c := p[i]; c >= ' ' && c != 0x7f || strings.IndexByte(controls, c) >= 0 {
				kept = append(kept, c)
			}
			i++
		}
	}
	return kept, len(p)
}

// draws reports whether a whole sequence draws, and no more.
func draws(s []byte) bool {
	if s[0] != 0x1b || len(s) < 2 {
		return false // the forms of two bytes in UTF-8 are rare, and terminals differ
	}
	if s[1] != '[' {
		return len(s) == 2 && strings.IndexByte(escapes, s[1]) >= 0 ||
			len(s) == 3 && strings.IndexByte(sets, s[1]) >= 0 && strings.IndexByte(charsets, s[2]) >= 0
	}
	if len(s) == 2 {
		return false // a broken one
	}
	final, params := s[len(s)-1], s[2:len(s)-1]
	switch {
	case final == 'h' || final == 'l':
		mark := ""
		if bytes.HasPrefix(params, []byte("?")) {
			mark, params = "?", params[1:]
		}
		return !slices.ContainsFunc(bytes.Split(params, []byte(";")), func(p []byte) bool { return !modes[mark+string(p)] })
	case strings.IndexByte(drawing, final) < 0:
		return false
	}
	// A private mark or an intermediate character makes it another sequence. No number is
	// so large that it keeps a terminal busy.
	for part := range bytes.FieldsFuncSeq(params, func(r rune) bool { return r == ';' || r == ':' }) {
		if len(part) > 4 {
			return false
		}
	}
	return !bytes.ContainsFunc(params, func(r rune) bool { return (r < '0' || r > '9') && r != ';' && r != ':' })
}
