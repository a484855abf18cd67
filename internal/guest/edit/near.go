package edit

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Bounds of a search for near lines.
const (
	maxNear     = 3       // lines that an error shows
	maxShown    = 160     // bytes of a line that an error shows
	maxCompared = 200     // bytes of a line that are compared
	maxFollowed = 50      // further lines that are compared after a near one
	maxLines    = 100_000 // lines that are looked at
	minScore    = 0.5
)

// A candidate is a line of a file at which a text almost is.
type candidate struct {
	line  int // from 1
	equal int // lines that are equal but for white space, from this one on
	first int // those of them that are equal, from this one on
	score float64
}

// near describes the lines of a text that are most like old, which is not in it.
func near(text []byte, old string) string {
	if len(text) == 0 {
		return "The file is empty"
	}
	want := strings.Split(strings.Trim(strings.ReplaceAll(old, "\r\n", "\n"), "\n"), "\n")
	blank := 0
	for blank < len(want)-1 && strings.TrimSpace(want[blank]) == "" {
		blank++
	}
	want = want[blank:min(len(want), blank+maxFollowed)]
	lines, all := splitLines(text)
	var best []candidate
	target := newProfile(want[0])
	for i := range lines {
		c := candidate{line: i + 1}
		same := true
		for c.equal < len(want) && i+c.equal < len(lines) && equalButSpace(lines[i+c.equal], want[c.equal]) {
			same = same && string(trimEnd(lines[i+c.equal])) == want[c.equal]
			c.equal++
			if same {
				c.first = c.equal
			}
		}
		switch {
		case c.equal > 0:
			c.score = float64(c.equal)
		case len(want[0]) > 0:
			c.score = target.like(lines[i])
		}
		if c.score < minScore {
			continue
		}
		best = append(best, c)
		if len(best) > maxNear {
			slices.SortStableFunc(best, func(a, b candidate) int { return cmp.Compare(b.score, a.score) })
			best = best[:maxNear]
		}
	}
	if len(best) == 0 {
		where := "No line"
		if !all {
			where = fmt.Sprintf("None of the first %d lines", maxLines)
		}
		return where + " is like its first line " + quote([]byte(want[0]))
	}
	slices.SortStableFunc(best, func(a, b candidate) int { return cmp.Compare(b.score, a.score) })
	if c := best[0]; c.equal == len(want) {
		return fmt.Sprintf("Line %d differs only in %s: the file has %s", c.line, c.difference(lines, want), quote(lines[c.line-1+min(c.first, len(want)-1)]))
	} else if c.equal > 0 && c.line-1+c.equal < len(lines) {
		what := "its first line is"
		if c.equal > 1 {
			what = fmt.Sprintf("its first %d lines are", c.equal)
		}
		return fmt.Sprintf("At line %d %s in the file, and line %d differs: the file has %s, old_string has %s",
			c.line, what, c.line+c.equal, quote(lines[c.line-1+c.equal]), quote([]byte(want[c.equal])))
	}
	var b strings.Builder
	b.WriteString("The nearest lines:")
	for i, c := range best {
		if i > 0 {
			b.WriteByte(';')
		}
		fmt.Fprintf(&b, " %d: %s", c.line, quote(lines[c.line-1]))
	}
	return b.String()
}

// difference names the difference of lines that are equal but for white space.
func (c candidate) difference(lines [][]byte, want []string) string {
	if c.first == len(want) {
		return "its line endings, or in empty lines around it"
	}
	return fmt.Sprintf("white space, first in line %d", c.line+c.first)
}

// splitLines returns the first lines of a text without their ends, and whether
// these are all.
func splitLines(text []byte) (lines [][]byte, all bool) {
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		if len(lines) == maxLines {
			return lines, false
		}
		lines = append(lines, line)
	}
	return lines, true
}

func trimEnd(line []byte) []byte { return bytes.TrimSuffix(line, []byte("\r")) }

// equalButSpace reports whether two lines are equal without their white space. Two
// blank lines are equal.
func equalButSpace(line []byte, want string) bool {
	i, j := 0, 0
	for {
		for i < len(line) && isSpace(line[i]) {
			i++
		}
		for j < len(want) && isSpace(want[j]) {
			j++
		}
		if i == len(line) || j == len(want) {
			return i == len(line) && j == len(want)
		}
		if line[i] != want[j] {
			return false
		}
		i++
		j++
	}
}

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// A profile counts the pairs of neighbouring bytes of a text.
type profile struct {
	counts, seen [1 << 16]uint8
	total        int
}

func newProfile(text string) *profile {
	p := &profile{}
	text = strings.TrimSpace(text)
	for i := 1; i < len(text) && i <= maxCompared; i++ {
		p.counts[pair(text[i-1], text[i])]++
		p.total++
	}
	return p
}

func pair(a, b byte) uint16 { return uint16(a)<<8 | uint16(b) }

// like returns how alike a line and the text are, from 0 to 1: by the share of the
// pairs that are in both, or of the text's pairs that are in a longer line.
func (p *profile) like(line []byte) float64 {
	line = bytes.TrimSpace(line)
	if p.total == 0 || len(line) < 2 {
		return 0
	}
	line = line[:min(len(line), maxCompared+1)]
	both := 0
	for i := 1; i < len(line); i++ {
		if at := pair(line[i-1], line[i]); p.seen[at] < p.counts[at] {
			p.seen[at]++
			both++
		}
	}
	for i := 1; i < len(line); i++ {
		p.seen[pair(line[i-1], line[i])] = 0
	}
	const partly = 0.7
	return max(2*float64(both)/float64(len(line)-1+p.total), partly*float64(both)/float64(p.total))
}

// quote quotes a line, cut to maxShown bytes.
func quote(line []byte) string {
	text := string(line)
	if len(text) > maxShown {
		text = strings.ToValidUTF8(text[:maxShown], "") + "…"
	}
	return strconv.Quote(strings.ToValidUTF8(text, "\uFFFD"))
}
