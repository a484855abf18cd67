package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	fenced  = regexp.MustCompile("(?ms)^```.*?^```$")
)

// TestLinks follows the links in the documentation that lead to other files of
// the repository, and to headings in them.
func TestLinks(t *testing.T) {
	root := filepath.Join("..", "..")
	pages := 0
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "images/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		pages += len(found)
		for _, page := range found {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(string(text), ""), -1) {
				path, anchor, _ := strings.Cut(m[1], "#")
				if strings.Contains(path, ":") {
					continue // elsewhere
				}
				target := page
				if path != "" {
					target = filepath.Join(filepath.Dir(page), filepath.FromSlash(path))
				}
				if _, err := os.Stat(target); err != nil {
					t.Errorf("%s: the link to %s leads nowhere", page, m[1])
				} else if anchor != "" && !hasHeading(t, target, anchor) {
					t.Errorf("%s: there is no heading %s", page, m[1])
				}
			}
		}
	}
	if pages < 5 {
		t.Errorf("only %d pages were found", pages)
	}
}

// hasHeading reports whether a page has a heading that GitHub gives that name.
func hasHeading(t *testing.T, page, anchor string) bool {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(string(text), ""), -1) {
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r > 127:
				return r
			}
			return -1
		}, strings.ToLower(m[1]))
		if name == anchor {
			return true
		}
	}
	return false
}
