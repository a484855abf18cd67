package config

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUnknownVariables(t *testing.T) {
	got := UnknownVariables([]string{
		"GLOVEBOX_TIMEUOT=5m", "GLOVEBOX_STATEDIR=/x", "GLOVEBOX_COLOUR=red", "GLOVEBOX_=x", "GLOVEBOX_EMPTY=",
		"GLOVEBOX_TIMEOUT=5m", "GLOVEBOX_CONFIG=/c", "GLOVEBOX_REQUIRE=docker", "GLOVEBOX_TEST_ANY=1", "HOME=/root", "MY_GLOVEBOX_X=1",
	})
	want := []UnknownVariable{
		{"GLOVEBOX_", ""}, {"GLOVEBOX_COLOUR", ""}, {"GLOVEBOX_STATEDIR", "GLOVEBOX_STATE_DIR"}, {"GLOVEBOX_TIMEUOT", "GLOVEBOX_TIMEOUT"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestVariablesOfRepository checks that no variable of our own files is unknown.
func TestVariablesOfRepository(t *testing.T) {
	// Tests give these to programs in sandboxes, or show a mistake with them.
	inTests := []string{"GLOVEBOX_", "GLOVEBOX_COLOUR", "GLOVEBOX_EMPTY", "GLOVEBOX_STATEDIR", "GLOVEBOX_TIMEUOT",
		"GLOVEBOX_APT_SOURCE", "GLOVEBOX_ENV", "GLOVEBOX_FAKE_ROLE", "GLOVEBOX_KEY", "GLOVEBOX_PROCESS"}
	name := regexp.MustCompile(`\bGLOVEBOX_[A-Z0-9_]*`)
	found := map[string]bool{}
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); path != root && (base[0] == '.' || base == "node_modules" || base == "bin" || base == "dist") {
				return filepath.SkipDir
			}
			return nil
		}
		ext := filepath.Ext(path)
		if d.Name() != "Makefile" && !slices.Contains([]string{".go", ".sh", ".ps1", ".txtar", ".md", ".yaml", ".yml"}, ext) {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, n := range name.FindAllString(string(text), -1) {
			found[n] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if !found["GLOVEBOX_STATE_DIR"] || !found["GLOVEBOX_INSTALL_DIR"] || !found["GLOVEBOX_TEST_BINARY"] {
		t.Fatal("the files of the repository were not read")
	}
	var environ []string
	for n := range found {
		environ = append(environ, n+"=x")
	}
	for _, u := range UnknownVariables(environ) {
		if !slices.Contains(inTests, u.Name) {
			t.Errorf("%s is not known: add it to otherVariables, or correct it", u.Name)
		}
	}
}
