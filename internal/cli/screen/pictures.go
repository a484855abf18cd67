package screen

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"
)

// A Show writes a picture in a form that a terminal displays. It reports false if
// it does not, because the picture is of another type, or too large.
type Show func(w io.Writer, mime string, data []byte) (shown bool, err error)

// Bounds on a picture that a terminal gets. The terminal decodes the picture, and
// a few bytes can make a large one.
const (
	maxScreenBytes  = 4 << 20
	maxScreenPixels = 16 << 20
)

// Names of terminals, by their protocol for pictures.
var (
	kittyTerms     = []string{"xterm-kitty", "xterm-ghostty"}
	kittyPrograms  = []string{"ghostty"}
	inlinePrograms = []string{"iTerm.app", "WezTerm", "mintty"}
)

// Pictures returns how the terminal with the descriptor fd displays pictures, or
// nil if it displays none, as far as the environment tells.
func Pictures(fd int, getenv func(string) string) Show {
	term, program := getenv("TERM"), getenv("TERM_PROGRAM")
	if getenv("TMUX") != "" || strings.HasPrefix(term, "screen") || strings.HasPrefix(term, "tmux") {
		return nil // a multiplexer does not know where a picture is
	}
	send := sendInline
	switch {
	case getenv("KITTY_WINDOW_ID") != "", slices.Contains(kittyTerms, term), slices.Contains(kittyPrograms, program):
		columns, pixels := windowWidth(fd)
		send = func(w io.Writer, data []byte) error {
			if width, _ := pngSize(data); pixels > 0 && int64(width) > int64(pixels) {
				return sendKitty(w, data, columns)
			}
			return sendKitty(w, data, 0)
		}
	case slices.Contains(inlinePrograms, program), getenv("LC_TERMINAL") == "iTerm2":
	default:
		return nil
	}
	return func(w io.Writer, mime string, data []byte) (bool, error) {
		if !fits(mime, data) {
			return false, nil
		}
		return true, send(w, data)
	}
}

// fits reports whether data is a PNG within the bounds.
func fits(mime string, data []byte) bool {
	width, height := pngSize(data)
	return mime == "image/png" && len(data) <= maxScreenBytes && width > 0 && height > 0 &&
		int64(width)*int64(height) <= maxScreenPixels
}

// pngSize returns the size in pixels that the header of a PNG names, or zeros.
func pngSize(data []byte) (width, height uint32) {
	const header = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
	if len(data) < len(header)+8 || string(data[:len(header)]) != header {
		return 0, 0
	}
	return binary.BigEndian.Uint32(data[len(header):]), binary.BigEndian.Uint32(data[len(header)+4:])
}

// kittyPiece is the most base64 in one command of kitty's protocol.
const kittyPiece = 4096

// sendKitty sends a PNG by kitty's protocol for graphics. With columns, the
// terminal scales it to that width.
func sendKitty(w io.Writer, data []byte, columns int) error {
	var b strings.Builder
	keys := "a=T,f=100,q=2,"
	if columns > 0 {
		keys += fmt.Sprintf("c=%d,", columns)
	}
	for text := base64.StdEncoding.EncodeToString(data); text != ""; keys = "" {
		piece := text[:min(len(text), kittyPiece)]
		text = text[len(piece):]
		more := 0
		if text != "" {
			more = 1
		}
		fmt.Fprintf(&b, "\x1b_G%sm=%d;%s\x1b\\", keys, more, piece)
	}
	b.WriteByte('\n')
	_, err := io.WriteString(w, b.String())
	return err
}

// sendInline sends a picture by iTerm2's protocol for inline images. The terminal
// scales a picture that is wider than itself.
func sendInline(w io.Writer, data []byte) error {
	_, err := fmt.Fprintf(w, "\x1b]1337;File=inline=1;size=%d:%s\a\n", len(data), base64.StdEncoding.EncodeToString(data))
	return err
}
