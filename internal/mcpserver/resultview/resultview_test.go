package resultview

import (
	"regexp"
	"strings"
	"testing"
)

// TestPage checks that the page is small, needs nothing from elsewhere, and has each
// function that it calls.
func TestPage(t *testing.T) {
	if len(Page) > 40_000 {
		t.Errorf("the page has %d bytes", len(Page))
	}
	for _, bad := range []string{"import ", "export ", "src=", "href=", "innerHTML", "eval("} {
		if strings.Contains(Page, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	for _, address := range regexp.MustCompile(`https?://[^'"]*`).FindAllString(Page, -1) {
		if address != "http://www.w3.org/2000/svg" { // a name, not an address
			t.Errorf("the page has %s", address)
		}
	}
	for _, name := range []string{"const { draw } = ", "const { sortable } = "} {
		if strings.Count(Page, name) != 1 {
			t.Errorf("the page lacks %s", name)
		}
	}
	if n := strings.Count(Page, "</script>"); n != 1 {
		t.Errorf("the script ends %d times", n)
	}
}

func TestMeta(t *testing.T) {
	if m := Meta("stop_run", false, false); m != nil {
		t.Errorf("%v", m)
	}
	for _, tool := range []string{"run_code", "run_command", "get_run"} {
		if ui, ok := Meta(tool, true, true)["ui"].(map[string]any); !ok || ui["resourceUri"] != URI {
			t.Errorf("%s: %v", tool, ui)
		}
	}
}
