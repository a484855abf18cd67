package dashboard

import (
	"html/template"
	"io/fs"
	"path"
	"regexp"
)

// tablePart matches the beginning of an element of a table in a template.
var tablePart = regexp.MustCompile(`<(?:(table|thead|tbody|tr|td)\b|th scope="(col|row)")`)

// tableRoles are the roles of the elements of a table, by name, and of headers by scope.
var tableRoles = map[string]string{
	"table": "table", "thead": "rowgroup", "tbody": "rowgroup", "tr": "row", "td": "cell",
	"col": "columnheader", "row": "rowheader",
}

// withRoles gives each element of a table in a template its role as an attribute. The
// style sheet lays rows out as cards in narrow windows, and some browsers then no longer
// tell screen readers that they are rows of a table. Chromium tells them in any case.
func withRoles(page string) string {
	return tablePart.ReplaceAllStringFunc(page, func(tag string) string {
		match := tablePart.FindStringSubmatch(tag)
		return tag + ` role="` + tableRoles[match[1]+match[2]] + `"`
	})
}

// parsePages adds all pages to t, each with the name of its file.
func parsePages(t *template.Template) (*template.Template, error) {
	files, err := fs.Glob(pageFiles, "pages/*.html")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		page, err := pageFiles.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if _, err := t.New(path.Base(file)).Parse(withRoles(string(page))); err != nil {
			return nil, err
		}
	}
	return t, nil
}
