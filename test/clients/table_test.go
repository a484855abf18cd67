//go:build linux

package clients

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of docs/clients.md instead of comparing with it")

// The table is in the document between these lines.
const (
	document   = "../../docs/clients.md"
	tableBegin = "<!-- what follows is made by make clients-table -->\n"
	tableEnd   = "<!-- what precedes is made by make clients-table -->\n"
)

// A row is the cells of one client, by the names of columns.
type row map[string]string

// A column has the possible cells from the worst to the best. Without them, any
// cell is as good as another, or it is a number, of which less is better.
type column struct {
	name   string
	ranks  []string
	number bool
}

var columns = []column{
	{name: "client"},
	{name: "version"},
	{name: "API of its model"},
	{name: "definitions of tools"},
	{name: "text"},
	{name: "JSON"},
	{name: "picture", ranks: []string{"no", "base64 text", "yes"}},
	{name: "picture of a failed run", ranks: []string{"no", "base64 text", "yes"}},
	{name: "links to files", ranks: []string{"no", "yes"}},
	{name: "signal of a timeout"},
	{name: "timeout in the client", ranks: []string{"the run ends", "the run goes on"}},
	{name: "interrupt by its user", ranks: []string{"the run goes on", "the run ends"}},
	{name: "characters", number: true},
}

// growth is the part by which a number may become larger.
const growth = 0.05

// newRow makes the cells of a client out of its two conversations.
func newRow(t *testing.T, c client, version string, talk, late *model) row {
	t.Helper()
	total := 0
	for i := range counted {
		total += characters(talk.results[i].text)
	}
	r := row{
		"client": c.title, "version": c.module + " " + version, "API of its model": c.api,
		"definitions of tools":    "at once",
		"text":                    yes(strings.Contains(talk.of("state").text, "[ok, ")),
		"JSON":                    yes(strings.Contains(talk.of("state").text, `"status"`)),
		"picture":                 pictureCell(talk.of("plot")),
		"picture of a failed run": pictureCell(talk.of("plot of a failed run")),
		"links to files":          yes(fileLink.MatchString(talk.of("file made").text)),
		"characters":              strconv.Itoa(total),
	}
	if talk.deferred {
		r["definitions of tools"] = "after a search"
	}
	switch after := late.of("after it").text; {
	case strings.Contains(after, "it-goes-on"):
		r["timeout in the client"] = "the run goes on"
	case strings.Contains(after, "it-has-ended"):
		r["timeout in the client"] = "the run ends"
	default:
		t.Errorf("the model does not see whether the run goes on:\n%s", late.transcript())
	}
	return r
}

// fileLink is the URI of the file that the conversation makes.
var fileLink = regexp.MustCompile(`sandbox://sbx_[a-z2-7]{26}/files/data/report\.csv`)

// of returns the result of a step that was made.
func (m *model) of(name string) seen {
	r, _ := m.result(name)
	return r
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func pictureCell(r seen) string {
	switch {
	case r.pictures > 0:
		return "yes"
	case strings.Contains(r.text, "iVBORw0KGgo"): // the first bytes of any PNG
		return "base64 text"
	}
	return "no"
}

// compareTable compares rows with the document, and fails for each worse cell. With
// -update, it writes them.
func compareTable(t *testing.T, rows []row, complete bool) {
	t.Helper()
	text := readFile(t, document)
	before, rest, ok := strings.Cut(text, tableBegin)
	old, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table: a line %q and a line %q", document, strings.TrimSpace(tableBegin), strings.TrimSpace(tableEnd))
	}
	if *update {
		if !complete {
			t.Fatal("the table needs all clients, and each must hold the conversation")
		}
		if err := os.WriteFile(document, []byte(before+tableBegin+"\n"+formatTable(rows)+"\n"+tableEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	committed := parseTable(old)
	for _, r := range rows {
		i := slices.IndexFunc(committed, func(o row) bool { return o["client"] == r["client"] })
		if i < 0 {
			t.Errorf("%s has no row of %s: go test ./test/clients -update", document, r["client"])
			continue
		}
		for _, worse := range worseCells(committed[i], r) {
			t.Error(worse)
		}
	}
}

// worseCells compares two rows of a client.
func worseCells(committed, now row) []string {
	var found []string
	if committed["version"] != now["version"] {
		found = append(found, fmt.Sprintf("%s: the table is of version %s, and this is %s: go test ./test/clients -update",
			now["client"], committed["version"], now["version"]))
	}
	for _, c := range columns {
		was, is := committed[c.name], now[c.name]
		worse := false
		switch {
		case c.number:
			a, err := strconv.Atoi(was)
			b, err2 := strconv.Atoi(is)
			worse = err != nil || err2 != nil || float64(b) > float64(a)*(1+growth)
		case c.ranks != nil:
			worse = slices.Index(c.ranks, is) < slices.Index(c.ranks, was)
		}
		if worse {
			found = append(found, fmt.Sprintf("%s, %s: %q is worse than %q", now["client"], c.name, is, was))
		}
	}
	return found
}

func formatTable(rows []row) string {
	var b strings.Builder
	line := func(cell func(column) string) {
		b.WriteString("|")
		for _, c := range columns {
			b.WriteString(" " + cell(c) + " |")
		}
		b.WriteString("\n")
	}
	line(func(c column) string { return c.name })
	b.WriteString(strings.Repeat("|---", len(columns)) + "|\n")
	for _, r := range rows {
		line(func(c column) string { return r[c.name] })
	}
	return b.String()
}

// parseTable reads what formatTable wrote.
func parseTable(text string) []row {
	var rows []row
	var names []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if names == nil {
			names = cells
			continue
		}
		r := row{}
		for i, cell := range cells[:min(len(cells), len(names))] {
			r[names[i]] = cell
		}
		rows = append(rows, r)
	}
	return rows
}

// TestTable writes a table, reads it again and finds the cells that are worse.
func TestTable(t *testing.T) {
	good := row{"client": "A", "version": "1.2", "API of its model": "x", "definitions of tools": "at once", "text": "yes", "JSON": "no",
		"picture": "yes", "picture of a failed run": "base64 text", "links to files": "yes", "signal of a timeout": "nothing",
		"timeout in the client": "the run goes on", "interrupt by its user": "not tried", "characters": "1000"}
	rows := parseTable(formatTable([]row{good, {"client": "B"}}))
	if len(rows) != 2 || rows[1]["client"] != "B" {
		t.Fatalf("read %v", rows)
	}
	with := func(name, cell string) row {
		r := row{}
		for k, v := range good {
			r[k] = v
		}
		r[name] = cell
		return r
	}
	for _, c := range []struct {
		now   row
		worse bool
	}{
		{good, false},
		{with("text", "no"), false},
		{with("picture of a failed run", "yes"), false},
		{with("picture of a failed run", "no"), true},
		{with("picture", "base64 text"), true},
		{with("picture", "something else"), true},
		{with("timeout in the client", "the run ends"), true},
		{with("links to files", "no"), true},
		{with("signal of a timeout", "closes the request"), false},
		{with("interrupt by its user", "the run ends"), false},
		{with("characters", "1050"), false},
		{with("characters", "1051"), true},
		{with("characters", "many"), true},
		{with("version", "1.3"), true},
	} {
		if found := worseCells(rows[0], c.now); (len(found) > 0) != c.worse {
			t.Errorf("%v: worse: %q", c.now, found)
		}
	}
}
