package cli

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Streams are a command's input, outputs and environment. Only data goes to Out,
// so that it can be piped; with stdio, Out belongs to the protocol. Messages to
// a person go to Err.
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

// terminal returns the file descriptor of v if v is a terminal.
func terminal(v any) (fd int, ok bool) {
	f, ok := v.(*os.File)
	if !ok {
		return 0, false
	}
	fd = int(f.Fd())
	return fd, term.IsTerminal(fd)
}

// A paint adds a colour to a text, or returns it unchanged.
type paint func(string) string

// Colours, as numbers of the terminal's palette, which the user can configure.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	faint  = "2"
	bold   = "1"
)

// painter returns a painter for w. It adds colours only if w is a terminal with
// colours and NO_COLOR is not set (https://no-color.org).
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
