// Package console is the contact of a command with its user: streams, messages,
// tables, questions and exit statuses.
//
// The command line and its subpackages import it. It has no state: the streams
// belong to the process, or to a test.
package console

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Streams are a command's input, outputs and environment. Only data goes to Out,
// so that it can be piped; with stdio, Out belongs to the protocol. Messages to
// a person go to Err.
type Streams struct {
	In     io.Reader
	Out    io.Writer
	Err    io.Writer
	Getenv func(string) string
	// Environ returns the whole environment, as NAME=VALUE. It may be nil.
	Environ func() []string
}

// Terminal returns the file descriptor of v if v is a terminal.
func Terminal(v any) (fd int, ok bool) {
	f, ok := v.(*os.File)
	if !ok {
		return 0, false
	}
	fd = int(f.Fd())
	return fd, term.IsTerminal(fd)
}

// Agree asks the person at the terminal, and returns an error unless they agree.
func (s Streams) Agree(question string) error {
	if !s.Asks(question) {
		return &ExitError{Status: StatusFailure, Err: sandbox.Errorf(sandbox.Conflict, "nothing was changed")}
	}
	return nil
}

// Asks asks the person at the terminal, and reports whether they agree.
func (s Streams) Asks(question string) bool {
	fmt.Fprint(s.Err, question+" [y/N] ")
	// Read no more than the line: another question may follow.
	var line []byte
	for b := make([]byte, 1); len(line) < 100; {
		if _, err := io.ReadFull(s.In, b); err != nil {
			return false
		}
		if b[0] == '\n' {
			break
		}
		line = append(line, b[0])
	}
	a := strings.ToLower(strings.TrimSpace(string(line)))
	return a == "y" || a == "yes"
}

// Secret asks the person at the terminal for a text, and does not show it.
func (s Streams) Secret(question string) (string, error) {
	fd, ok := Terminal(s.In)
	if !ok {
		return "", sandbox.Errorf(sandbox.Internal, "ask: standard input is no terminal")
	}
	fmt.Fprint(s.Err, question)
	text, err := term.ReadPassword(fd)
	fmt.Fprintln(s.Err)
	if err != nil {
		return "", &ExitError{Status: StatusFailure, Err: sandbox.Errorf(sandbox.Conflict, "nothing was typed, and nothing was changed")}
	}
	return string(text), nil
}

// A Paint adds a colour to a text, or returns it unchanged.
type Paint func(string) string

// Colours, as numbers of the terminal's palette, which the user can configure.
const (
	Red    = "31"
	Green  = "32"
	Yellow = "33"
	Faint  = "2"
	Bold   = "1"
)

// Painter returns a painter for w. It adds colours only if w is a terminal with
// colours and NO_COLOR is not set (https://no-color.org).
func (s Streams) Painter(w io.Writer) func(colour string) Paint {
	_, isTerminal := Terminal(w)
	plain := !isTerminal || s.Getenv("NO_COLOR") != "" || s.Getenv("TERM") == "dumb"
	return func(colour string) Paint {
		return func(text string) string {
			if plain || text == "" {
				return text
			}
			return "\x1b[" + colour + "m" + text + "\x1b[0m"
		}
	}
}
