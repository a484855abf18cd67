package usage

import (
	"encoding/csv"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Query selects and groups amounts.
type Query struct {
	// From and To bound the beginnings of hours and days: From is included, To is not.
	// A zero time is no bound.
	From, To time.Time
	// Principals are the accounts to select; none selects all.
	Principals []sandbox.Principal
	// By are the columns to group by. Without [ByHour] and [ByDay], the rows are sums
	// over the whole time.
	By []Column
	// Limit bounds the rows; 0 is no bound. The oldest rows come first.
	Limit int
}

// A Column is a column that amounts are grouped by.
type Column string

// The columns. BySandbox shows each sandbox on record, and no other column.
const (
	ByHour      Column = "hour"
	ByDay       Column = "day"
	ByPrincipal Column = "principal"
	ByWorkspace Column = "workspace"
	ByLabel     Column = "label"
	BySandbox   Column = "sandbox"
)

// Columns are all columns.
func Columns() []Column {
	return []Column{ByHour, ByDay, ByPrincipal, ByWorkspace, ByLabel, BySandbox}
}

// ParseColumns returns the columns in a list with commas. The error wraps
// [sandbox.Invalid].
func ParseColumns(text string) ([]Column, error) {
	var by []Column
	for name := range strings.SplitSeq(text, ",") {
		c := Column(strings.TrimSpace(name))
		if !slices.Contains(Columns(), c) {
			return nil, sandbox.Errorf(sandbox.Invalid, "by: %q is not a column; the columns are %s", name, names())
		}
		if slices.Contains(by, c) {
			return nil, sandbox.Errorf(sandbox.Invalid, "by: %s is there twice", c)
		}
		by = append(by, c)
	}
	switch {
	case slices.Contains(by, ByHour) && slices.Contains(by, ByDay):
		return nil, sandbox.Errorf(sandbox.Invalid, "by: hour and day exclude each other")
	case slices.Contains(by, BySandbox) && len(by) > 1:
		return nil, sandbox.Errorf(sandbox.Invalid, "by: sandbox excludes other columns")
	}
	return by, nil
}

func names() string {
	var list []string
	for _, c := range Columns() {
		list = append(list, string(c))
	}
	return strings.Join(list, ", ")
}

// Has reports whether the query groups by that column.
func (q *Query) Has(c Column) bool { return slices.Contains(q.By, c) }

// ParseTime returns the time of a text: a date, or a time of RFC 3339. The error wraps
// [sandbox.Invalid].
func ParseTime(text string) (time.Time, error) {
	if t, err := time.Parse(time.DateOnly, text); err == nil {
		return t, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, sandbox.Errorf(sandbox.Invalid, "%q is not a date such as 2026-11-26, nor a time such as 2026-11-26T12:00:00Z", text)
	}
	return t.UTC(), nil
}

// WriteCSV writes rows as CSV, with a header. A text that a spreadsheet would take for a
// formula is quoted with an apostrophe.
func WriteCSV(w io.Writer, rows []Row) error {
	out := csv.NewWriter(w)
	if err := out.Write(append([]string{"start", "principal", "workspace", "label", "sandbox_id"}, Names()...)); err != nil {
		return err
	}
	for _, r := range rows {
		start := ""
		if !r.Start.IsZero() {
			start = r.Start.UTC().Format(time.RFC3339)
		}
		line := []string{start, plain(string(r.Principal)), plain(r.Workspace), plain(r.Label), r.SandboxID}
		for _, v := range r.Values() {
			line = append(line, strconv.FormatInt(*v, 10))
		}
		if err := out.Write(line); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

func plain(text string) string {
	if text != "" && strings.ContainsAny(text[:1], "=+-@\t\r") {
		return "'" + text
	}
	return text
}
