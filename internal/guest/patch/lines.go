package patch

import (
	"bytes"
	"fmt"
	"slices"
	"sort"
)

// Bounds of a comparison.
const (
	// maxDepth bounds the recursion between lines that occur once.
	maxDepth = 16
	// maxTable bounds the table for lines of which none occurs once.
	maxTable = 1 << 18
	context  = 3 // lines around a change
)

// noEnd follows a last line without an end, as diff writes it.
const noEnd = "\n\\ No newline at end of file\n"

// A comparison matches the lines of two texts. Lines are numbers, equal for equal
// lines.
type comparison struct {
	a, b  []int32
	pair  []int32 // for each line of a, the same line of b, or -1
	count [2][]int32
	where []int32 // of a line, its last position in b
}

// match matches lines of a[a0:a1] with lines of b[b0:b1]: those at both ends, then
// those that occur once in each, and then those between them.
func (c *comparison) match(a0, a1, b0, b1, depth int) {
	for a0 < a1 && b0 < b1 && c.a[a0] == c.b[b0] {
		c.pair[a0] = int32(b0)
		a0, b0 = a0+1, b0+1
	}
	for a0 < a1 && b0 < b1 && c.a[a1-1] == c.b[b1-1] {
		a1, b1 = a1-1, b1-1
		c.pair[a1] = int32(b1)
	}
	if a0 == a1 || b0 == b1 {
		return
	}
	var anchors []int
	if depth < maxDepth {
		anchors = c.anchors(a0, a1, b0, b1)
	}
	if len(anchors) == 0 {
		c.table(a0, a1, b0, b1)
		return
	}
	for _, i := range anchors {
		j := int(c.pair[i])
		c.match(a0, i, b0, j, depth+1)
		a0, b0 = i+1, j+1
	}
	c.match(a0, a1, b0, b1, depth+1)
}

// anchors matches the lines that occur once in each part, as many as are in the same
// order in both, and returns their positions in a.
func (c *comparison) anchors(a0, a1, b0, b1 int) []int {
	for _, line := range c.a[a0:a1] {
		c.count[0][line]++
	}
	for j, line := range c.b[b0:b1] {
		c.count[1][line]++
		c.where[line] = int32(b0 + j)
	}
	var once []int
	for i, line := range c.a[a0:a1] {
		if c.count[0][line] == 1 && c.count[1][line] == 1 {
			once = append(once, a0+i)
		}
	}
	// The longest increasing sequence of their positions in b, by patience sorting.
	var tops []int // positions in once: the last elements of sequences of each length
	before := make([]int, len(once))
	for k, i := range once {
		at := sort.Search(len(tops), func(n int) bool { return c.where[c.a[once[tops[n]]]] > c.where[c.a[i]] })
		before[k] = -1
		if at > 0 {
			before[k] = tops[at-1]
		}
		tops = append(tops[:at], k)[:max(len(tops), at+1)]
	}
	var found []int
	if len(tops) > 0 {
		for k := tops[len(tops)-1]; k >= 0; k = before[k] {
			c.pair[once[k]] = c.where[c.a[once[k]]]
			found = append(found, once[k])
		}
		slices.Reverse(found)
	}
	for _, line := range c.a[a0:a1] {
		c.count[0][line] = 0
	}
	for _, line := range c.b[b0:b1] {
		c.count[1][line] = 0
	}
	return found
}

// table matches a longest common subsequence, if its table is small. Otherwise
// nothing is matched.
func (c *comparison) table(a0, a1, b0, b1 int) {
	n, m := a1-a0, b1-b0
	if n > maxTable/m {
		return
	}
	longest := make([]int32, (n+1)*(m+1)) // of a[i:] and b[j:]
	for i := n - 1; i >= 0; i-- {
		for j := m - 1; j >= 0; j-- {
			at := i*(m+1) + j
			if c.a[a0+i] == c.b[b0+j] {
				longest[at] = longest[at+m+2] + 1
			} else {
				longest[at] = max(longest[at+1], longest[at+m+1])
			}
		}
	}
	for i, j := 0, 0; i < n && j < m; {
		at := i*(m+1) + j
		switch {
		case c.a[a0+i] == c.b[b0+j]:
			c.pair[a0+i] = int32(b0 + j)
			i, j = i+1, j+1
		case longest[at+m+1] >= longest[at+1]:
			i++
		default:
			j++
		}
	}
}

// split returns the lines of a text with their ends.
func split(text []byte) [][]byte {
	if len(text) == 0 {
		return nil
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	if last := len(lines) - 1; len(lines[last]) == 0 {
		lines = lines[:last]
	}
	return lines
}

// unified writes the hunks between two texts.
func unified(w *bytes.Buffer, old, now []byte) {
	a, b := split(old), split(now)
	known := map[string]int32{}
	number := func(lines [][]byte) []int32 {
		out := make([]int32, len(lines))
		for i, line := range lines {
			n, ok := known[string(line)]
			if !ok {
				n = int32(len(known))
				known[string(line)] = n
			}
			out[i] = n
		}
		return out
	}
	c := &comparison{a: number(a), b: number(b), pair: make([]int32, len(a))}
	for i := range c.pair {
		c.pair[i] = -1
	}
	c.count = [2][]int32{make([]int32, len(known)), make([]int32, len(known))}
	c.where = make([]int32, len(known))
	c.match(0, len(a), 0, len(b), 0)

	// A hunk goes on while its changes are at most 2*context lines apart.
	for i, j := 0, 0; i < len(a) || j < len(b); {
		if i < len(a) && int(c.pair[i]) == j {
			i, j = i+1, j+1
			continue
		}
		from := min(i, context)
		hunk := &hunk{a: i - from, b: j - from}
		for k := i - from; k < i; k++ {
			hunk.add(' ', a[k])
		}
		same := 0 // lines of context after the last change
		for i < len(a) || j < len(b) {
			if i < len(a) && int(c.pair[i]) == j {
				if same == 2*context {
					break
				}
				hunk.add(' ', a[i])
				i, j, same = i+1, j+1, same+1
				continue
			}
			same = 0
			if i < len(a) && c.pair[i] < 0 {
				hunk.add('-', a[i])
				i++
			} else {
				hunk.add('+', b[j])
				j++
			}
		}
		hunk.write(w, max(0, same-context))
	}
}

// A hunk is a part of a difference. Its lines begin at a and b, from 0.
type hunk struct {
	a, b  int
	signs []byte
	lines [][]byte
}

func (h *hunk) add(sign byte, line []byte) {
	h.signs, h.lines = append(h.signs, sign), append(h.lines, line)
}

// write writes the hunk without its last lines of context.
func (h *hunk) write(w *bytes.Buffer, without int) {
	h.signs = h.signs[:len(h.signs)-without]
	count := func(a int, other byte) string {
		n := len(h.signs) - bytes.Count(h.signs, []byte{other})
		if n == 0 {
			return fmt.Sprintf("%d,0", a)
		}
		if n == 1 {
			return fmt.Sprint(a + 1)
		}
		return fmt.Sprintf("%d,%d", a+1, n)
	}
	fmt.Fprintf(w, "@@ -%s +%s @@\n", count(h.a, '+'), count(h.b, '-'))
	for i, sign := range h.signs {
		w.WriteByte(sign)
		w.Write(h.lines[i])
		if !bytes.HasSuffix(h.lines[i], []byte("\n")) {
			w.WriteString(noEnd)
		}
	}
}
