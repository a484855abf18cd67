package search

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Pattern is a regular expression for a line, in RE2's syntax. A match takes a time
// that is at most proportional to the product of the sizes of line and pattern.
type Pattern struct {
	re *regexp.Regexp
	// literal is a text that every matching line has, or empty.
	literal []byte
	// ends is set if the pattern names the carriage return, which is otherwise a part
	// of the line's end.
	ends bool
}

// maxProgram bounds a compiled pattern, in instructions. One step in a line can take
// so many.
const maxProgram = 1000

// Compile compiles a pattern. Its errors begin with the name of the argument.
func Compile(pattern string) (*Pattern, error) {
	switch {
	case pattern == "":
		return nil, errors.New("pattern: is empty")
	case len(pattern) > sandbox.MaxPattern:
		return nil, fmt.Errorf("pattern: %d bytes are more than %d", len(pattern), sandbox.MaxPattern)
	}
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		var bad *syntax.Error
		if errors.As(err, &bad) {
			return nil, fmt.Errorf("pattern: %s: `%s`; the syntax is RE2's, without look-around and back-references", bad.Code, bad.Expr)
		}
		return nil, fmt.Errorf("pattern: %w", err)
	}
	literal := required(tree)
	if strings.Contains(literal, "\n") {
		return nil, errors.New("pattern: has the end of a line, and is for one line")
	}
	program, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil, fmt.Errorf("pattern: %w", err)
	}
	if len(program.Inst) > maxProgram {
		return nil, fmt.Errorf("pattern: its repetitions and classes make %d steps, more than %d", len(program.Inst), maxProgram)
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("pattern: %w", err)
	}
	return &Pattern{re: re, literal: []byte(literal), ends: strings.Contains(pattern, `\r`)}, nil
}

// required returns the longest literal text that every match has, as far as that is
// easy to see.
func required(re *syntax.Regexp) string {
	switch re.Op {
	case syntax.OpLiteral:
		text := string(re.Rune)
		// The replacement character also stands for bytes that are not UTF-8.
		if re.Flags&syntax.FoldCase != 0 || strings.ContainsRune(text, utf8.RuneError) {
			return ""
		}
		return text
	case syntax.OpCapture, syntax.OpPlus:
		return required(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return required(re.Sub[0])
		}
	case syntax.OpConcat:
		longest := ""
		for _, sub := range re.Sub {
			if text := required(sub); len(text) > len(longest) {
				longest = text
			}
		}
		return longest
	}
	return ""
}

// find returns where the first match in a line begins, or -1.
func (p *Pattern) find(line []byte) int {
	if len(p.literal) > 0 && !bytes.Contains(line, p.literal) {
		return -1
	}
	loc := p.re.FindIndex(line)
	if loc == nil {
		return -1
	}
	return loc[0]
}

// matches reports whether a line matches, which is faster to know.
func (p *Pattern) matches(line []byte) bool {
	return (len(p.literal) == 0 || bytes.Contains(line, p.literal)) && p.re.Match(line)
}
