package answer

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Page is the part of a stream that a result shows: the bytes from Offset to
// NextOffset, of Total so far. With grep, it is the part that was searched, and
// Matches is the number of matching lines.
type Page struct {
	Stream     sandbox.StreamName `json:"stream"`
	Offset     int64              `json:"offset"`
	NextOffset int64              `json:"next_offset"`
	Total      int64              `json:"total"`
	Matches    *int               `json:"matches,omitempty"`
}

func (p Page) text() string {
	var b strings.Builder
	if p.Matches != nil {
		fmt.Fprintf(&b, "%d matching lines in ", *p.Matches)
	}
	fmt.Fprintf(&b, "bytes %d to %d of %d of %s.", p.Offset, p.NextOffset, p.Total, p.Stream)
	if p.NextOffset < p.Total {
		fmt.Fprintf(&b, " Go on at offset %d.", p.NextOffset)
	}
	return b.String()
}

// FirstRunes returns the longest prefix of s of at most n bytes that ends at a
// character boundary.
func FirstRunes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
