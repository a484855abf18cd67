package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func allowed(pkg string) (imports []string, all, known bool) {
	i := slices.IndexFunc(table, func(r row) bool { return r.pkg == pkg })
	if i < 0 {
		return nil, false, false
	}
	switch text := table[i].imports; text {
	case "nothing":
		return nil, false, true
	case "all":
		return nil, true, true
	default:
		return strings.Split(text, ", "), false, true
	}
}

func TestImports(t *testing.T) {
	for _, s := range sources(t) {
		imports, all, known := allowed(s.pkg)
		if !known {
			t.Errorf("%s: package %s is not in the table", s.path, s.pkg)
			continue
		}
		for _, p := range s.imports() {
			if p != module && !strings.HasPrefix(p, module+"/") {
				continue
			}
			target := packageOf(p)
			if s.test {
				// Tests put things together that must not know each other,
				// but the whole program belongs to the edge's tests alone.
				if (target == "app" || target == "cli") && s.pkg != "app" && s.pkg != "cli" {
					t.Errorf("%s: tests of %s may not import %s", s.path, s.pkg, target)
				}
				continue
			}
			if testOnly[target] {
				t.Errorf("%s: only tests may import %s", s.path, target)
			}
			if !all && !slices.Contains(imports, target) {
				t.Errorf("%s: %s may not import %s; see the table in docs/ARCHITECTURE.md", s.path, s.pkg, target)
			}
		}
	}
}

func TestTableHasNoMore(t *testing.T) {
	exists := map[string]bool{}
	for _, s := range sources(t) {
		exists[s.pkg] = true
	}
	for _, r := range table {
		if !exists[r.pkg] {
			t.Errorf("the table has %s, which does not exist", r.pkg)
		}
		imports, _, _ := allowed(r.pkg)
		if !slices.IsSorted(imports) {
			t.Errorf("%s: imports are not sorted", r.pkg)
		}
		for _, i := range imports {
			if !exists[i] {
				t.Errorf("%s may import %s, which does not exist", r.pkg, i)
			}
		}
	}
}

// docRow matches a line of the table in the document: | `pkg` | holds | may import |.
var docRow = regexp.MustCompile("(?m)^\\| `([a-z0-9/-]+)` \\| [^|]+ \\| ([^|]+) \\|$")

func TestTableIsDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repositoryRoot(t), "docs", "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	var got []row
	for _, m := range docRow.FindAllStringSubmatch(string(text), -1) {
		got = append(got, row{m[1], strings.TrimSpace(m[2])})
	}
	for i := range max(len(got), len(table)) {
		switch {
		case i >= len(got):
			t.Errorf("docs/ARCHITECTURE.md lacks the line of %s", table[i].pkg)
		case i >= len(table):
			t.Errorf("docs/ARCHITECTURE.md has a line too many: %s", got[i].pkg)
		case got[i] != table[i]:
			t.Errorf("line %d: docs/ARCHITECTURE.md has %q, the test %q", i+1, got[i], table[i])
		}
	}
}

func TestOutsideModules(t *testing.T) {
	used := map[string]bool{}
	for _, s := range sources(t) {
		for _, p := range s.imports() {
			if first, _, _ := strings.Cut(p, "/"); !strings.Contains(first, ".") || strings.HasPrefix(p, module) {
				continue
			}
			name, users := "", []string(nil)
			for m, u := range outside {
				if p == m || strings.HasPrefix(p, m+"/") {
					name, users = m, u
				}
			}
			if name == "" {
				t.Errorf("%s: imports %s, of a module that the arch test does not list", s.path, p)
				continue
			}
			used[name] = true
			ok := slices.Contains(users, s.pkg) || s.test && slices.Contains(users, "tests")
			if !ok {
				t.Errorf("%s: only %s may import %s", s.path, strings.Join(users, ", "), name)
			}
		}
	}
	for m := range outside {
		if !used[m] {
			t.Errorf("the list of outside modules has %s, which nothing imports", m)
		}
	}
}

func TestPackageNames(t *testing.T) {
	// A package with such a name has no subject, and so collects everything.
	bad := []string{"util", "utils", "common", "helper", "helpers", "types", "manager", "models", "misc", "base", "shared"}
	for _, s := range sources(t) {
		last := s.pkg[strings.LastIndex(s.pkg, "/")+1:]
		if slices.Contains(bad, last) {
			t.Errorf("%s: a package may not be called %s", s.path, last)
		}
	}
}

// The most lines of a file. Tests are lists of cases, and read as such.
const (
	maxLines     = 600
	maxTestLines = 1000
)

// maxPackageLines is the most lines of a package, without tests. A reader keeps one
// package in mind at a time.
const maxPackageLines = 5000

// maxDriverLines is the most lines of a package below driver. A driver translates:
// rules belong to the engine.
const maxDriverLines = 2000

func mostLines(pkg string) int {
	if strings.HasPrefix(pkg, "driver/") {
		return maxDriverLines
	}
	return maxPackageLines
}

func TestPackageSizes(t *testing.T) {
	lines := map[string]int{}
	for _, s := range sources(t) {
		if !s.test {
			lines[s.pkg] += s.lines
		}
	}
	for pkg, n := range lines {
		if n > mostLines(pkg) && longPackages[pkg] == "" {
			t.Errorf("%s has %d lines: split it, or give the reason in longPackages", pkg, n)
		}
	}
	for pkg := range longPackages {
		if lines[pkg] <= mostLines(pkg) {
			t.Errorf("longPackages has %s, which is not too long", pkg)
		}
	}
}

func TestFileSizes(t *testing.T) {
	long := map[string]bool{}
	for _, s := range sources(t) {
		if s.lines <= maxLines || s.test && s.lines <= maxTestLines {
			continue
		}
		long[s.path] = true
		if longFiles[s.path] == "" {
			t.Errorf("%s has %d lines: split it, or give the reason in longFiles", s.path, s.lines)
		}
	}
	for p := range longFiles {
		if !long[p] {
			t.Errorf("longFiles has %s, which is not too long", p)
		}
	}
}
