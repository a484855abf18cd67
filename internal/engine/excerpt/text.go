package excerpt

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Quote bounds a caller's text for use in a message, and quotes it so that it
// cannot control a terminal.
func Quote(s string) string {
	const most = 60
	if len(s) > most {
		return fmt.Sprintf("%.*q…", most, s)
	}
	if sandbox.ValidID(s) || sandbox.ValidRunID(s) {
		return s
	}
	return fmt.Sprintf("%q", s)
}

// Cut shortens s to n bytes without splitting a character, and marks the cut.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// FirstLine returns the first line of p, with its newline.
func FirstLine(p []byte) []byte {
	if i := bytes.IndexByte(p, '\n'); i >= 0 {
		return p[:i+1]
	}
	return p
}

// CleanLine returns a line of output of a program in a sandbox, shortened and
// without control characters.
func CleanLine(p []byte) string {
	p = p[:min(len(p), 256)]
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return -1
		}
		return r
	}, string(p)))
}
