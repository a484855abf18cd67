package dashboard

import (
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// The bounds of a table from a result.
const (
	maxTableRows = 500
	maxTableCols = 60
	maxCell      = 300 // bytes
	maxTableHTML = 1 << 20
)

// A tableView is the text of a table. Nothing else of its markup is kept.
type tableView struct {
	Head []cell
	Rows [][]cell
	Cut  bool // there are more rows or columns
}

// A cell is a cell of a table.
type cell struct {
	Text   string
	Head   bool
	Number bool // its column has numbers
}

// HasHead reports whether the columns have names.
func (t *tableView) HasHead() bool { return len(t.Head) > 0 }

// tableOf returns the first table of a page. ok is false if it has none with cells.
func tableOf(page string) (t tableView, ok bool) {
	if len(page) > maxTableHTML {
		return tableView{}, false
	}
	z := html.NewTokenizer(strings.NewReader(page))
	z.SetMaxBuf(maxTableHTML)
	var row []cell
	var text strings.Builder
	inTable, inCell, skip := false, false, 0
	endCell := func() {
		if inCell && len(row) > 0 {
			c := &row[len(row)-1]
			c.Text = strings.Join(strings.Fields(text.String()), " ")
			if len(c.Text) > maxCell {
				c.Text = strings.ToValidUTF8(c.Text[:maxCell], "") + " …"
			}
		}
		inCell = false
		text.Reset()
	}
	endRow := func() {
		endCell()
		if len(row) > maxTableCols {
			row, t.Cut = row[:maxTableCols], true
		}
		heads := 0
		for _, c := range row {
			if c.Head {
				heads++
			}
		}
		switch {
		case len(row) == 0:
		case len(t.Rows) == 0 && heads == len(row): // the last of several such rows counts
			t.Head = row
		case len(t.Rows) == maxTableRows:
			t.Cut = true
		default:
			t.Rows = append(t.Rows, row)
		}
		row = nil
	}
	for {
		kind := z.Next()
		if kind == html.ErrorToken {
			break
		}
		token := z.Token()
		switch name := token.Data; {
		case kind == html.TextToken:
			if inCell && skip == 0 {
				text.WriteString(name)
			}
		case name == "script" || name == "style":
			if kind == html.StartTagToken {
				skip++
			} else if kind == html.EndTagToken && skip > 0 {
				skip--
			}
		case kind == html.StartTagToken && name == "table":
			inTable = true
		case !inTable:
		case name == "table" && kind == html.EndTagToken:
			endRow()
			t.align()
			return t, len(t.Rows) > 0
		case name == "tr":
			endRow()
		case (name == "td" || name == "th") && kind == html.StartTagToken:
			endCell()
			row = append(row, cell{Head: name == "th"})
			inCell = true
		case name == "td" || name == "th":
			endCell()
		}
	}
	endRow()
	t.align()
	return t, len(t.Rows) > 0
}

// align marks the columns of numbers, so that a column and its name are on one side. A
// column of numbers may have missing values.
func (t *tableView) align() {
	var numbers, words [maxTableCols]bool
	for _, row := range t.Rows {
		for i, c := range row {
			if isNumber(c.Text) {
				numbers[i] = true
			} else if !slices.Contains(missingValues, c.Text) {
				words[i] = true
			}
		}
	}
	mark := func(row []cell) {
		for i := range row {
			row[i].Number = numbers[i] && !words[i]
		}
	}
	mark(t.Head)
	for _, row := range t.Rows {
		mark(row)
	}
}

// missingValues are what pandas, polars, R and others write for a missing value, and for
// numbers without digits.
var missingValues = []string{"", "-", "–", "…", "...", "NaN", "nan", "NaT", "<NA>", "NA", "None", "null", "inf", "-inf", "Inf", "-Inf"}

// numeric matches a number, as tables write them. A date is none.
var numeric = regexp.MustCompile(`^[+-]?[$€£]? ?(\d[\d.,_ ]*|\.\d+)([eE][+-]?\d+)? ?%?$`)

// isNumber reports whether a text is a number.
func isNumber(text string) bool { return numeric.MatchString(text) }
