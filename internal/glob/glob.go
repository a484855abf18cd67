package glob

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// Bounds of a glob: its bytes, and the patterns that its braces stand for.
const (
	MaxLength   = 1024
	maxPatterns = 64
)

// A Glob is a pattern for paths below a directory. A pattern without a slash is
// for the names of files, at any depth. Other patterns are for whole paths. Besides
// git's wildcards there are alternatives in braces, such as *.{go,mod}.
type Glob struct {
	patterns [][]string
	names    bool // the patterns are for names
}

// Parse parses a glob. Its errors have no prefix.
func Parse(text string) (*Glob, error) {
	switch {
	case text == "":
		return nil, errors.New("is empty")
	case len(text) > MaxLength:
		return nil, fmt.Errorf("%d bytes are more than %d", len(text), MaxLength)
	case strings.HasPrefix(text, "/"):
		return nil, errors.New("begins with a slash, and is relative to path")
	}
	g := &Glob{names: !strings.Contains(text, "/")}
	all, err := expand([]string{text})
	if err != nil {
		return nil, err
	}
	for _, pattern := range all {
		pattern = strings.TrimPrefix(strings.TrimSuffix(pattern, "/"), "./")
		if !closed(pattern) {
			return nil, errors.New("a bracket is not closed")
		}
		g.patterns = append(g.patterns, splitPattern(pattern))
	}
	return g, nil
}

// Matches reports whether a path matches. It is relative, with slashes.
func (g *Glob) Matches(name string) bool {
	if g.names {
		name = path.Base(name)
	}
	parts := strings.Split(name, "/")
	for _, p := range g.patterns {
		if matchParts(p, parts) {
			return true
		}
	}
	return false
}

// Enters reports whether a path below dir can match. Dir is relative, too.
func (g *Glob) Enters(dir string) bool {
	if g.names {
		return true
	}
	parts := strings.Split(dir, "/")
	for _, p := range g.patterns {
		if enters(p, parts) {
			return true
		}
	}
	return false
}

func enters(pattern, dir []string) bool {
	for i, part := range dir {
		if i == len(pattern) {
			return false
		}
		if pattern[i] == "**" {
			return true
		}
		if !matchPart(pattern[i], part) {
			return false
		}
	}
	return len(pattern) > len(dir)
}

// splitPattern returns the parts of a pattern. A part of several stars is **.
func splitPattern(pattern string) []string {
	parts := strings.Split(pattern, "/")
	for i, part := range parts {
		if len(part) > 1 && strings.Trim(part, "*") == "" {
			parts[i] = "**"
		}
	}
	return parts
}

// expand replaces braces by the alternatives in them, the first braces first.
func expand(patterns []string) ([]string, error) {
	for {
		var next []string
		found := false
		for _, p := range patterns {
			open, end, commas := braces(p)
			if open < 0 {
				next = append(next, p)
				continue
			}
			found = true
			from := open + 1
			for _, to := range append(commas, end) {
				next = append(next, p[:open]+p[from:to]+p[end+1:])
				from = to + 1
			}
			if len(next) > maxPatterns {
				return nil, fmt.Errorf("its braces stand for more than %d patterns", maxPatterns)
			}
		}
		if patterns = next; !found {
			return patterns, nil
		}
	}
}

// braces returns where the first braces with a comma begin and end, and their own
// commas. Open is negative if there are none.
func braces(p string) (open, end int, commas []int) {
	for start := 0; start < len(p); start++ {
		switch p[start] {
		case '\\':
			start++
			continue
		case '{':
		default:
			continue
		}
		depth, commas := 0, []int(nil)
		for i := start; i < len(p); i++ {
			switch p[i] {
			case '\\':
				i++
			case '{':
				depth++
			case ',':
				if depth == 1 {
					commas = append(commas, i)
				}
			case '}':
				depth--
			}
			if depth == 0 {
				if len(commas) > 0 {
					return start, i, commas
				}
				break
			}
		}
	}
	return -1, 0, nil
}

// closed reports whether the brackets of a pattern are closed.
func closed(pattern string) bool {
	for part := range strings.SplitSeq(pattern, "/") {
		for i := 0; i < len(part); {
			switch part[i] {
			case '\\':
				i += 2
			case '[':
				size := classSize(part[i:])
				if size == 0 {
					return false
				}
				i += size
			default:
				i++
			}
		}
	}
	return true
}

// classSize returns the length of the class with which a pattern begins, or 0 if
// it is not closed or has an unknown name.
func classSize(pattern string) int {
	size, _ := matchClass(pattern, 0)
	return size
}
