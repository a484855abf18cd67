package cli

import (
	"fmt"
	"html"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	namedTest  = regexp.MustCompile("`((?:Test|Fuzz)[A-Z][A-Za-z0-9]*)`")
	testFunc   = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z][A-Za-z0-9]*)\(`)
	scriptName = regexp.MustCompile("the script `([a-z0-9_]+)`")
)

// TestDocsNamedTests looks for every test that the documentation names.
func TestDocsNamedTests(t *testing.T) {
	all := pages(t)
	there := map[string]bool{}
	look := func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "node_modules" {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range testFunc.FindAllSubmatch(text, -1) {
			there[string(m[1])] = true
		}
		return nil
	}
	for _, dir := range []string{"internal", "test"} {
		if err := filepath.WalkDir(filepath.Join("..", "..", dir), look); err != nil {
			t.Fatal(err)
		}
	}
	found := 0
	for name, page := range all {
		for _, m := range namedTest.FindAllStringSubmatch(page, -1) {
			found++
			if !there[m[1]] {
				t.Errorf("%s names %s, which is not there", name, m[1])
			}
		}
		for _, m := range scriptName.FindAllStringSubmatch(page, -1) {
			found++
			if _, err := os.Stat(filepath.Join("testdata", m[1]+".txtar")); err != nil {
				t.Errorf("%s names the script %s: %v", name, m[1], err)
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d tests are named", found)
	}
}

// TestDocsPicture compares the picture of a session, docs/tour.svg, with the
// page that TestDocsGvisor runs, docs/tour.md; -update draws it anew.
func TestDocsPicture(t *testing.T) {
	page, ok := pages(t)["docs/tour.md"]
	if !ok {
		t.Fatal("there is no docs/tour.md")
	}
	file := filepath.Join("..", "..", "docs", "tour.svg")
	want := picture(examples(page))
	if *rewrite {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("%s does not show what docs/tour.md says (%v): go test ./internal/cli -run DocsPicture -update", file, err)
	}
}

// picture draws a terminal with commands and what they print.
func picture(all []example) string {
	const height, top, left = 21, 52, 22
	var rows []string
	row := func(class, prompt, text string) {
		y := top + height*len(rows)
		rows = append(rows, fmt.Sprintf(`<text x="%d" y="%d" class="%s" xml:space="preserve"><tspan class="prompt">%s</tspan>%s</text>`,
			left, y, class, prompt, html.EscapeString(text)))
	}
	for _, e := range all {
		if _, ok := e.shell(); ok {
			for line := range strings.Lines(e.text) {
				row("command", "$ ", strings.TrimSuffix(line, "\n"))
			}
			for line := range strings.Lines(e.output) {
				row("output", "", strings.TrimSuffix(line, "\n"))
			}
		}
	}
	const width = 960
	total := top + height*len(rows)
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d" role="img" aria-label="A session in a terminal; docs/tour.md has it as text">
<style>text { font: 14px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace } .command { fill: #f0f3f6 } .output { fill: #9ecbff } .prompt { fill: #7ee787 }</style>
<rect width="%[1]d" height="%[2]d" rx="10" fill="#161b22"/>
<circle cx="24" cy="20" r="6" fill="#ff5f57"/><circle cx="44" cy="20" r="6" fill="#febc2e"/><circle cx="64" cy="20" r="6" fill="#28c840"/>
%[3]s
</svg>
`, width, total, strings.Join(rows, "\n"))
}
