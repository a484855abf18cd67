package screen

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Picture is a picture from a sandbox. Sixel is the same as sixels, or nil.
type Picture struct {
	MIME        string
	Data, Sixel []byte
}

// A Show writes a picture in a form that a terminal displays. It reports false if
// it does not, because the picture is of another type, or too large.
type Show func(w io.Writer, p Picture) (shown bool, err error)

// Bounds on a picture that a terminal gets. The terminal decodes the picture, and
// a few bytes can make a large one.
const (
	maxScreenBytes  = 4 << 20
	maxScreenPixels = 16 << 20
)

// A protocol is a form in which terminals display pictures.
type protocol string

const (
	none   protocol = "none"
	kitty  protocol = "kitty"
	inline protocol = "iterm2"
	sixel  protocol = "sixel"
)

// EnvProtocol is the environment variable that names the protocol of a terminal:
// kitty, iterm2, sixel or none. Another value leaves it to the detection.
const EnvProtocol = "GLOVEBOX_PICTURES"

// Names of terminals, by their protocol for pictures.
var (
	kittyTerms     = []string{"xterm-kitty", "xterm-ghostty"}
	kittyPrograms  = []string{"ghostty"}
	inlinePrograms = []string{"iTerm.app", "WezTerm", "mintty"}
	sixelTerms     = []string{"foot", "mlterm", "contour", "yaft"} // also with a suffix such as -256color
)

// konsoleSixel is the first version of Konsole with sixels, 22.04, as it is in
// KONSOLE_VERSION.
const konsoleSixel = 220400

// protocolOf returns how a terminal displays pictures, as far as the environment
// tells. It does not ask the terminal: the answer would come between the keys that
// the user types for the program.
func protocolOf(getenv func(string) string) protocol {
	switch p := protocol(getenv(EnvProtocol)); p {
	case none, kitty, inline, sixel:
		return p
	}
	term, program := getenv("TERM"), getenv("TERM_PROGRAM")
	version, _ := strconv.Atoi(getenv("KONSOLE_VERSION")) // 0 in other terminals
	family, _, _ := strings.Cut(term, "-")
	switch {
	case getenv("TMUX") != "", family == "screen", family == "tmux":
		return none // a multiplexer does not know where a picture is
	case getenv("KITTY_WINDOW_ID") != "", slices.Contains(kittyTerms, term), slices.Contains(kittyPrograms, program):
		return kitty
	case slices.Contains(inlinePrograms, program), getenv("LC_TERMINAL") == "iTerm2":
		return inline
	case slices.Contains(sixelTerms, family), getenv("MLTERM") != "", version >= konsoleSixel:
		return sixel
	}
	return none
}

// Pictures returns how the terminal with the descriptor fd displays pictures, or
// nil if it displays none.
func Pictures(fd int, getenv func(string) string) Show {
	switch protocolOf(getenv) {
	case kitty:
		columns, pixels := windowWidth(fd)
		return showPNG(func(w io.Writer, data []byte) error {
			if width, _ := pngSize(data); pixels > 0 && int64(width) > int64(pixels) {
				return sendKitty(w, data, columns)
			}
			return sendKitty(w, data, 0)
		})
	case inline:
		return showPNG(sendInline)
	case sixel:
		return showSixel
	}
	return nil
}

// SixelWidth returns the most pixels of a line of sixels on the terminal with the
// descriptor fd, or 0 if Pictures does not show sixels there. Terminals cut off a
// wider picture.
func SixelWidth(fd int, getenv func(string) string) int {
	if protocolOf(getenv) != sixel {
		return 0
	}
	const cell, columnsOfMost = 8, 80 // if the terminal does not tell
	columns, pixels := windowWidth(fd)
	if pixels == 0 {
		pixels = cmp.Or(columns, columnsOfMost) * cell
	}
	return min(pixels, sandbox.MaxSixelSide)
}

// showPNG returns a Show that sends PNGs within the bounds.
func showPNG(send func(w io.Writer, data []byte) error) Show {
	return func(w io.Writer, p Picture) (bool, error) {
		if !fits(p.MIME, p.Data) {
			return false, nil
		}
		return true, send(w, p.Data)
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
