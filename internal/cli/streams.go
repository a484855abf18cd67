package cli

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Streams are what a command reads, writes and asks of its surroundings. Only
// data goes to Out; everything that is said to a person goes to Err, so that
// output can be piped, and so that on stdio Out belongs to the protocol.
type Streams struct {
	In     io.Reader
	Out    io.Writer
	Err    io.Writer
	Getenv func(string) string
}

// OS returns the streams of this process.
func OS() Streams {
	return Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv}
}

// terminal returns the descriptor of v if v is a terminal.
func terminal(v any) (fd int, ok bool) {
	f, ok := v.(*os.File)
	if !ok {
		return 0, false
	}
	fd = int(f.Fd())
	return fd, term.IsTerminal(fd)
}

// A paint wraps text in a colour, or leaves it alone.
type paint func(string) string

// Colours, as the numbers of the terminal's own palette, which the user chose.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	faint  = "2"
	bold   = "1"
)

// painter returns a painter for w: a plain one unless w is a terminal that can
// show colours and nobody asked for none (https://no-color.org).
func (s Streams) painter(w io.Writer) func(colour string) paint {
	_, isTerminal := terminal(w)
	plain := !isTerminal || s.Getenv("NO_COLOR") != "" || s.Getenv("TERM") == "dumb"
	return func(colour string) paint {
		return func(text string) string {
			if plain || text == "" {
				return text
			}
			return "\x1b[" + colour + "m" + text + "\x1b[0m"
		}
	}
}
