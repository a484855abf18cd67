package dashboard

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"
)

// TestRoles looks at each element of a table of each page: without a role of its own, it
// has none in narrow windows of some browsers.
func TestRoles(t *testing.T) {
	files, err := fs.Glob(pageFiles, "pages/*.html")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	element := regexp.MustCompile(`<(?:table|thead|tbody|tfoot|caption|tr|th|td)\b[^>]*`)
	found := 0
	for _, file := range files {
		page, err := pageFiles.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, tag := range element.FindAllString(withRoles(string(page)), -1) {
			found++
			if strings.Count(tag, ` role="`) != 1 {
				t.Errorf("%s: %s> needs one role", file, tag)
			}
		}
	}
	if found == 0 {
		t.Error("the pages have no tables")
	}
	for tag, want := range map[string]string{
		`<tr data-key="k">`:             `<tr role="row" data-key="k">`,
		`<td{{if .A}} class="b"{{end}}`: `<td role="cell"{{if .A}} class="b"{{end}}`,
		`<th scope="row" class="b">`:    `<th scope="row" role="rowheader" class="b">`,
		`<track>`:                       `<track>`,
	} {
		if got := withRoles(tag); got != want {
			t.Errorf("%s becomes %s, want %s", tag, got, want)
		}
	}
}
