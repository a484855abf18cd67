package screen

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Text writer shows recorded output on a terminal. It replaces control
// characters, which could command the terminal, by text such as ^[ and \u202e. A
// carriage return becomes a line break, so that no text covers another.
type Text struct {
	w    io.Writer
	rest []byte // of a character that the last write cut
	cr   bool   // the last character was a carriage return
}

// NewText returns a writer for a terminal that w writes to. It must be closed.
func NewText(w io.Writer) *Text { return &Text{w: w} }

// Write writes the text of p. It keeps back an incomplete character at the end.
func (v *Text) Write(p []byte) (int, error) {
	data := append(v.rest, p...)
	v.rest = nil
	var b strings.Builder
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		if r == utf8.RuneError && size == 1 && !utf8.FullRune(data) {
			v.rest = append([]byte(nil), data...)
			break
		}
		v.add(&b, r, size, data[0])
		data = data[size:]
	}
	if _, err := io.WriteString(v.w, b.String()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close writes an incomplete character that ends the output.
func (v *Text) Close() error {
	var b strings.Builder
	for _, c := range v.rest {
		v.add(&b, utf8.RuneError, 1, c)
	}
	v.rest = nil
	_, err := io.WriteString(v.w, b.String())
	return err
}

func (v *Text) add(b *strings.Builder, r rune, size int, first byte) {
	afterCR := v.cr
	v.cr = r == '\r'
	switch {
	case r == '\n' && afterCR:
	case r == '\n', r == '\r':
		b.WriteByte('\n')
	case r == utf8.RuneError && size == 1:
		fmt.Fprintf(b, `\x%02x`, first)
	case r < ' ' && r != '\t', r == 0x7f:
		fmt.Fprintf(b, "^%c", r^0x40)
	case unicode.IsControl(r) && r != '\t', unicode.Is(unicode.Bidi_Control, r):
		fmt.Fprintf(b, `\u%04x`, r)
	default:
		b.WriteRune(r)
	}
}
