//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// The table is in the document between these lines.
const (
	tableBegin = "<!-- what follows is made by make compatibility -->\n"
	tableEnd   = "<!-- what precedes is made by make compatibility -->\n"
)

// tableCommand writes the table of the given results.
func tableCommand(args []string) error {
	f := flag.NewFlagSet("table", flag.ContinueOnError)
	doc := f.String("doc", "docs/compatibility.md", "`file` that has the table")
	facts := f.String("facts", "", "`file` whose lines say when and with what this was run")
	inside := f.String("inside", "", "`file` of results in a sandbox")
	host := f.String("host", "", "`file` of results on the host")
	if err := f.Parse(args); err != nil {
		return err
	}
	in, err := readResults(*inside)
	if err != nil {
		return err
	}
	out, err := readResults(*host)
	if err != nil {
		return err
	}
	intro, err := os.ReadFile(*facts)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(*doc)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), tableBegin)
	_, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no place for the table: a line %q and a line %q", *doc, strings.TrimSpace(tableBegin), strings.TrimSpace(tableEnd))
	}
	made := before + tableBegin + "\n" + strings.TrimSpace(string(intro)) + "\n\n" + table(in, out) + tableEnd + after
	return os.WriteFile(*doc, []byte(made), 0o644)
}

func readResults(name string) ([]result, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var all []result
	for dec := json.NewDecoder(bytes.NewReader(data)); ; {
		var r result
		err := dec.Decode(&r)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, r)
	}
}

// table returns the results of both sides. First comes the number of modules
// that pass, then each suite with a row per module, in the order of inside.
func table(inside, host []result) string {
	there := map[string]result{}
	var suites []string
	for _, r := range host {
		there[r.Suite+" "+r.Module] = r
	}
	for _, r := range inside {
		if !slices.Contains(suites, r.Suite) {
			suites = append(suites, r.Suite)
		}
	}
	var sums, rows strings.Builder
	sums.WriteString("| suite | modules | pass in a sandbox | pass on the host | seconds in a sandbox | seconds on the host |\n|---|---|---|---|---|---|\n")
	for _, suite := range suites {
		var n, here, hosts int
		var seconds, hostSeconds float64
		fmt.Fprintf(&rows, "### %s\n\n| module | in a sandbox | s | on the host | s | fails in the sandbox only |\n|---|---|---|---|---|---|\n", suite)
		for _, r := range inside {
			if r.Suite != suite {
				continue
			}
			h, ok := there[suite+" "+r.Module]
			if !ok {
				h = result{Result: "not run"}
			}
			n++
			here += passes(r)
			hosts += passes(h)
			seconds += r.Seconds
			hostSeconds += h.Seconds
			fmt.Fprintf(&rows, "| %s | %s | %.1f | %s | %.1f | %s |\n", r.Module, cell(r), r.Seconds, cell(h), h.Seconds, only(r, h))
		}
		rows.WriteString("\n")
		fmt.Fprintf(&sums, "| %s | %d | %d | %d | %.0f | %.0f |\n", suite, n, here, hosts, seconds, hostSeconds)
	}
	return sums.String() + "\n" + rows.String()
}

func passes(r result) int {
	if r.Result == pass {
		return 1
	}
	return 0
}

// cell formats a result for the table.
func cell(r result) string {
	words := []string{r.Result}
	if r.Tests > 0 {
		words = append(words, fmt.Sprintf("%d tests", r.Tests-r.Skipped))
	}
	if r.Skipped > 0 {
		words = append(words, fmt.Sprintf("%d skipped", r.Skipped))
	}
	if len(r.Failed) > 0 {
		words = append(words, fmt.Sprintf("%d failed", len(r.Failed)))
	}
	return strings.Join(words, ", ")
}

// maxNames is the maximum number of names in a row.
const maxNames = 6

// only lists the tests that fail inside but not on the host.
func only(inside, host result) string {
	var names []string
	for _, name := range inside.Failed {
		if !slices.Contains(host.Failed, name) {
			if inside.Suite == "go" {
				name = inside.Module + "." + name // Go's test names lack the package
			}
			names = append(names, "`"+strings.ReplaceAll(name, "|", "\\|")+"`")
		}
	}
	if len(names) > maxNames {
		return strings.Join(names[:maxNames], ", ") + fmt.Sprintf(" and %d more", len(names)-maxNames)
	}
	return strings.Join(names, ", ")
}
