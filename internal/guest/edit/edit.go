package edit

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// An Error says why an edit does not apply. It is the caller's mistake.
type Error struct {
	// Index is the position of the edit in the call.
	Index int
	// Text begins with the name of the argument.
	Text string
}

func (e *Error) Error() string { return e.Text }

// Apply returns contents after all edits, each of which is applied to the result of
// the edits before. It does not change old. Every error is an [*Error].
//
// A line ending \n in the text to find stands for \r\n in a part of the file that
// has it. The new text then gets \r\n, too. A text without a line ending gets the
// one that most lines of the file have. A text that has \r itself is taken as it is.
func Apply(old []byte, edits []sandbox.Edit) ([]byte, sandbox.Edited, error) {
	var done sandbox.Edited
	text, form, err := decode(old)
	if err != nil {
		return nil, done, &Error{Text: err.Error()}
	}
	for i := range edits {
		next, n, line, err := apply(text, &edits[i])
		if err != nil {
			return nil, done, &Error{i, err.Error()}
		}
		text = next
		done.Replacements += n
		done.Lines = append(done.Lines, line)
	}
	result := form.encode(text) // of UTF-16, at most twice as long
	done.Size = int64(len(result))
	if len(result) > sandbox.MaxEditFile {
		return nil, done, &Error{len(edits) - 1, tooLarge(done.Size).Error()}
	}
	return result, done, nil
}

// A finder finds the text of an edit in the text of a file.
type finder struct {
	text []byte
	// in is the text with \n for \r\n if the edit may match both; otherwise the text.
	in       []byte
	old      []byte
	new      []byte // in place of old
	newCRLF  []byte // in place of an old with \r\n
	flexible bool
}

func newFinder(text []byte, e *sandbox.Edit) *finder {
	f := &finder{text: text, in: text, old: []byte(e.Old), new: []byte(e.New)}
	ends := bytes.Count(text, []byte("\r\n"))
	if ends == 0 || strings.Contains(e.Old, "\r") || strings.Contains(e.New, "\r") {
		return f
	}
	f.newCRLF = []byte(strings.ReplaceAll(e.New, "\n", "\r\n"))
	switch {
	case strings.Contains(e.Old, "\n"):
		f.flexible = true
		f.in = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	case 2*ends > bytes.Count(text, []byte("\n")):
		f.new = f.newCRLF
	}
	return f
}

// apply returns a text after one edit, how many texts it replaced, and the line of
// the first one.
func apply(text []byte, e *sandbox.Edit) (next []byte, n, line int, err error) {
	f := newFinder(text, e)
	n = bytes.Count(f.in, f.old)
	first := bytes.Index(f.in, f.old)
	// Copies may overlap, as aa does in aaa: then more than one place is meant.
	if n == 1 && !e.All && bytes.Contains(f.in[first+1:], f.old) {
		n++
	}
	if n == 0 {
		return nil, 0, 0, fmt.Errorf("old_string: 0 matches. %s", near(text, e.Old))
	}
	if n > 1 && !e.All {
		return nil, 0, 0, fmt.Errorf("old_string: %d matches, %s. Add lines around the right one, or set replace_all", n, f.places())
	}
	if size := int64(len(text)) + int64(n)*int64(max(len(f.new), len(f.newCRLF))-len(f.old)); size > sandbox.MaxEditFile {
		return nil, 0, 0, tooLarge(size)
	}
	return f.replace(), n, 1 + bytes.Count(f.in[:first], []byte("\n")), nil
}

func tooLarge(size int64) error {
	return fmt.Errorf("new_string: the file would have %d bytes, more than the %d of a file that can be edited", size, sandbox.MaxEditFile)
}

// replace returns the text with every old replaced.
func (f *finder) replace() []byte {
	if !f.flexible {
		return bytes.ReplaceAll(f.text, f.old, f.new)
	}
	out := make([]byte, 0, len(f.text)+len(f.newCRLF))
	at, seen := 0, 0 // positions in text and in, which correspond
	copied := 0      // of text
	for {
		i := bytes.Index(f.in[seen:], f.old)
		if i < 0 {
			return append(out, f.text[copied:]...)
		}
		begin := f.advance(at, i)
		end := f.advance(begin, len(f.old))
		out = append(out, f.text[copied:begin]...)
		if end-begin > len(f.old) {
			out = append(out, f.newCRLF...)
		} else {
			out = append(out, f.new...)
		}
		at, copied, seen = end, end, seen+i+len(f.old)
	}
}

// advance returns the position in text that is n bytes of in after a position.
func (f *finder) advance(at, n int) int {
	for ; n > 0; n-- {
		if f.text[at] == '\r' && at+1 < len(f.text) && f.text[at+1] == '\n' {
			at++
		}
		at++
	}
	return at
}

// maxPlaces bounds the lines that an error lists.
const maxPlaces = 10

// places lists the lines at which old is.
func (f *finder) places() string {
	var lines []string
	line, from := 1, 0
	for {
		i := bytes.Index(f.in[from:], f.old)
		if i < 0 {
			return "at lines " + strings.Join(lines, ", ")
		}
		if len(lines) == maxPlaces {
			return "at lines " + strings.Join(lines, ", ") + " and further"
		}
		line += bytes.Count(f.in[from:from+i], []byte("\n"))
		lines = append(lines, strconv.Itoa(line))
		if f.in[from+i] == '\n' {
			line++
		}
		from += i + 1
	}
}
