//go:build linux && !nogvisor

package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// example matches a block of commands that is marked to be run, and what it
// prints.
var example = regexp.MustCompile("(?ms)^```sh run\n(.*?)^```\n\n```output\n(.*?)^```$")

// TestGvisorDocs runs the commands in the documentation that are marked for it.
func TestGvisorDocs(t *testing.T) {
	docs := os.Getenv("GLOVEBOX_TEST_DOCS")
	if docs == "" {
		docs = filepath.Join("..", "..")
	}
	var pages []string
	for _, pattern := range []string{"README.md", "docs/*.md", "docs/guides/*.md"} {
		found, err := filepath.Glob(filepath.Join(docs, pattern))
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	if len(pages) == 0 {
		t.Skip("the documentation is not here; the test runs in a checkout")
	}
	binary := os.Getenv("GLOVEBOX_TEST_BINARY")
	if binary == "" {
		binary = build(t)
	}
	needGvisor(t, binary)
	examples := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range example.FindAllStringSubmatch(string(text), -1) {
			examples++
			cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", m[1])
			cmd.Dir = t.TempDir()
			cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "GLOVEBOX_DRIVER=gvisor",
				"PATH="+filepath.Dir(binary)+string(os.PathListSeparator)+os.Getenv("PATH"))
			out, err := cmd.Output()
			if err != nil {
				t.Errorf("%s: %v\n%s", page, err, m[1])
			}
			if d := cmp.Diff(m[2], string(out)); d != "" {
				t.Errorf("%s: what it prints (-documented +got):\n%s%s", page, m[1], d)
			}
		}
	}
	if examples == 0 {
		t.Error("no page has an example that is run")
	}
}
