package guest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestGeneration counts generations, whatever programs of root wrote to the file.
func TestGeneration(t *testing.T) {
	c := &clone{file: filepath.Join(t.TempDir(), "dir", "generation")}
	seen := map[string]bool{}
	next := func(want string) {
		t.Helper()
		if err := c.count(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(c.file)
		if err != nil {
			t.Fatal(err)
		}
		n, id, _ := strings.Cut(string(text), "\n")
		if n != want || len(id) < 20 || !strings.HasSuffix(id, "\n") || seen[id] {
			t.Errorf("the file is %q, want %s and a random line", text, want)
		}
		seen[id] = true
	}
	next("1")
	next("2")
	if err := os.WriteFile(c.file, []byte("not a number"), 0o600); err != nil {
		t.Fatal(err)
	}
	next("1")
	if fi, err := os.Stat(c.file); err != nil || fi.Mode().Perm() != 0o644 {
		t.Errorf("the file has the mode %v, %v; every program must read it", fi.Mode(), err)
	}
}
