package safepath

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// Bounds of names.
const (
	// MaxName bounds a whole name, and MaxPart the part between two slashes, in
	// bytes.
	MaxName = 4095
	MaxPart = 255
	// MaxDepth bounds the nesting of directories. Deeper directories are neither
	// created nor walked; see [Dir.Walk].
	MaxDepth = 200
)

// Clean checks a name of a file below a directory, with slashes between its
// parts. It returns the shortest form of the name: "." for the directory itself.
// The error wraps [ErrName]. A name is refused if it is absolute, empty, too long
// or nested too deep. It is also refused if it has a part ".." or a NUL byte, or
// is not UTF-8.
func Clean(name string) (string, error) {
	if !utf8.ValidString(name) {
		return "", fmt.Errorf("%w: %s is not UTF-8", ErrName, Show(name))
	}
	return clean(name)
}

// clean is Clean for a name that may have any bytes.
func clean(name string) (string, error) { return cleanName(name, filepath.Separator) }

// cleanName is clean for file systems that treat separator like a slash. A
// separator in a part would lead to another directory.
func cleanName(name string, separator rune) (string, error) {
	bad := func(why string) (string, error) {
		return "", fmt.Errorf("%w: %s %s", ErrName, Show(name), why)
	}
	switch {
	case name == "":
		return bad("is empty")
	case len(name) > MaxName:
		return bad(fmt.Sprintf("has %d bytes; the maximum is %d", len(name), MaxName))
	case strings.ContainsRune(name, 0):
		return bad("has a NUL byte")
	case separator != '/' && strings.ContainsRune(name, separator):
		return bad(fmt.Sprintf("has a %q, which separates directories on this system", separator))
	case strings.HasPrefix(name, "/"):
		return bad("must be relative")
	}
	depth := 0
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "..":
			return bad(`has a part ".."`)
		case len(part) > MaxPart:
			return bad(fmt.Sprintf("has a part of %d bytes; the maximum is %d", len(part), MaxPart))
		case part != "" && part != ".":
			depth++
		}
	}
	if depth > MaxDepth {
		return bad(fmt.Sprintf("is %d directories deep; the maximum is %d", depth, MaxDepth))
	}
	return path.Clean(name), nil
}

// Show quotes a name for a message, and limits its length.
func Show(name string) string {
	const most = 60
	if len(name) > most {
		return fmt.Sprintf("%.*q…", most, name)
	}
	return fmt.Sprintf("%q", name)
}
