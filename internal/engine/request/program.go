package request

import (
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// maxProgram bounds the part of a program that the record of its run keeps, in
// bytes.
const maxProgram = 8 << 10

// Program returns the beginning of what a request runs, for the record of the
// run, and its full size.
func Program(req sandbox.RunRequest) (program string, size int64) {
	switch {
	case len(req.Commands) > 0:
		program = strings.Join(req.Commands, "\n")
	case len(req.Argv) > 0:
		words := make([]string, len(req.Argv))
		for i, w := range req.Argv {
			words[i] = shellWord(w)
		}
		program = strings.Join(words, " ")
	default:
		program = req.Code
	}
	size = int64(len(program))
	// The replacement of an invalid byte is longer than the byte.
	program = strings.ToValidUTF8(program[:min(len(program), maxProgram)], "\uFFFD")
	return strings.ToValidUTF8(program[:min(len(program), maxProgram)], ""), size
}

// shellWord returns a word as a shell reads it, in quotes if it needs some.
func shellWord(w string) string {
	special := func(r rune) bool { return r > 127 || !isPlain(byte(r)) }
	if w != "" && !strings.ContainsFunc(w, special) {
		return w
	}
	return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
}
