package glob

import "strings"

// matchParts matches the parts of a path with those of a pattern; ** matches any
// number of parts.
func matchParts(pattern, parts []string) bool {
	p, n := 0, 0
	star, from := -1, 0 // the last ** and the first part after its match
	for n < len(parts) {
		switch {
		case p < len(pattern) && pattern[p] == "**":
			star, from = p, n
			p++
		case p < len(pattern) && matchPart(pattern[p], parts[n]):
			p++
			n++
		case star >= 0: // the ** matches one part more
			from++
			p, n = star+1, from
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == "**" {
		p++
	}
	return p == len(pattern)
}

// matchPart matches a name with a part of a pattern, byte by byte, as git does.
// A malformed pattern matches nothing.
func matchPart(pattern, name string) bool {
	p, n := 0, 0
	star, from := -1, 0 // the last * and the first byte after its match
	for n < len(name) {
		if p < len(pattern) && pattern[p] == '*' {
			star, from = p, n
			p++
			continue
		}
		size, ok := matchByte(pattern[p:], name[n])
		switch {
		case ok:
			p += size
			n++
		case star >= 0: // the * matches one byte more
			from++
			p, n = star+1, from
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// matchByte matches a byte with the first element of a pattern, which is not *.
// It returns the size of the element.
func matchByte(pattern string, c byte) (size int, ok bool) {
	if pattern == "" {
		return 0, false
	}
	switch pattern[0] {
	case '?':
		return 1, true
	case '[':
		return matchClass(pattern, c)
	case '\\':
		return 2, len(pattern) > 1 && pattern[1] == c
	}
	return 1, pattern[0] == c
}

// matchClass matches a byte with the class in brackets with which a pattern
// begins.
func matchClass(pattern string, c byte) (size int, ok bool) {
	i := 1
	negated := i < len(pattern) && (pattern[i] == '!' || pattern[i] == '^')
	if negated {
		i++
	}
	for first := true; i < len(pattern) && (first || pattern[i] != ']'); first = false {
		if strings.HasPrefix(pattern[i:], "[:") {
			// Only so far as a name goes: a search to the end of each of many such
			// signs takes the square of the pattern's length.
			near := pattern[i+2 : min(len(pattern), i+2+maxClassName+len(":]"))]
			if name, _, found := strings.Cut(near, ":]"); found {
				in, known := byteClasses[name]
				if !known {
					return 0, false
				}
				ok = ok || in(c)
				i += len("[:") + len(name) + len(":]")
				continue
			}
		}
		low, next := classByte(pattern, i)
		high := low
		if next+1 < len(pattern) && pattern[next] == '-' && pattern[next+1] != ']' {
			high, next = classByte(pattern, next+1)
		}
		ok = ok || low <= c && c <= high
		i = next
	}
	if i >= len(pattern) { // the bracket is not closed
		return 0, false
	}
	return i + 1, ok != negated
}

// classByte returns the byte at i of a class, which a backslash may escape, and
// the index after it.
func classByte(pattern string, i int) (c byte, next int) {
	if pattern[i] == '\\' && i+1 < len(pattern) {
		i++
	}
	return pattern[i], i + 1
}

// maxClassName is the length of the longest name of a class of bytes.
const maxClassName = len("xdigit")

// byteClasses are the named classes of bytes.
var byteClasses = map[string]func(c byte) bool{
	"alnum":  func(c byte) bool { return isLetter(c) || isDigit(c) },
	"alpha":  isLetter,
	"blank":  func(c byte) bool { return c == ' ' || c == '\t' },
	"cntrl":  func(c byte) bool { return c < ' ' || c == 0x7f },
	"digit":  isDigit,
	"graph":  func(c byte) bool { return c > ' ' && c < 0x7f },
	"lower":  func(c byte) bool { return c >= 'a' && c <= 'z' },
	"print":  func(c byte) bool { return c >= ' ' && c < 0x7f },
	"punct":  func(c byte) bool { return c > ' ' && c < 0x7f && !isLetter(c) && !isDigit(c) },
	"space":  func(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' },
	"upper":  func(c byte) bool { return c >= 'A' && c <= 'Z' },
	"xdigit": func(c byte) bool { return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' },
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }
