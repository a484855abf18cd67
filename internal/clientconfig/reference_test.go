package clientconfig

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestReference keeps docs/reference/clients.md in step with the table.
func TestReference(t *testing.T) {
	page := filepath.Join("..", "..", "docs", "reference", "clients.md")
	if _, err := os.Stat(filepath.Join("..", "..", "go.mod")); err != nil {
		t.Skip("the documentation is not here; the test runs in a checkout")
	}
	var b strings.Builder
	b.WriteString("# Clients\n\nThe clients that `glovebox install` knows, with the file that it changes on Linux. " +
		"Each row links to the client's documentation. The facts were collected from these pages, from sources of clients, and from descriptions by others. " +
		"The last column has the date on which a row was collected. Tests run three clients with the entry that `install` writes. " +
		"`--url` marks the clients that can also use a server at a URL; `--project` marks those with a file for a project. " +
		"`--check` runs the command in the last column.\n\n" +
		"| client | name | file | `--url` | `--project` | own list | evidence |\n|---|---|---|---|---|---|---|\n")
	yes := map[bool]string{true: "yes"}
	for _, c := range Clients() {
		if c.Source == "" {
			t.Errorf("%s: no source", c.Name)
		}
		file, list := "shows the steps", ""
		if !c.ByHand() {
			place, ok := c.user["linux"]
			if !ok {
				place = c.user["*"]
			}
			file = "`" + place + "`"
		}
		if len(c.check) > 0 {
			list = "`" + strings.Join(c.check, " ") + "`"
		}
		if _, err := time.Parse(time.DateOnly, c.Read); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
		evidence := "read " + c.Read
		if c.Run {
			evidence += ", run in each test"
		}
		url := c.remote != nil || strings.Contains(c.Steps, "{url}")
		fmt.Fprintf(&b, "| [%s](%s) | `%s` | %s | %s | %s | %s | %s |\n", c.Title, c.Source, c.Name, file, yes[url], yes[c.project != ""], list, evidence)
	}
	if *update {
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), b.String()); d != "" {
		t.Errorf("run the test with -update (-file +table):\n%s", d)
	}
}
