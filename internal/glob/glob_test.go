package glob

import (
	"path"
	"strings"
	"testing"
)

func TestGlob(t *testing.T) {
	for pattern, c := range map[string]struct{ in, out string }{
		"*.go":                    {"a.go d/a.go d/e/.go", "a.gox d.go/x"},
		"*.{go,mod}":              {"a.go d/go.mod", "a.sum {go,mod}"},
		"src/**/*.go":             {"src/a.go src/d/e/a.go", "a.go x/src/a.go src/a.c"},
		"**/test/*":               {"test/a d/test/a", "test test/d/a"},
		"./src/*":                 {"src/a", "src/d/a"},
		"{src,test}/*.py":         {"src/a.py test/b.py", "a.py other/a.py"},
		"{a,b{c,d}}.txt":          {"a.txt bc.txt bd.txt d/a.txt", "b.txt"},
		"a{}b{x}":                 {"a{}b{x}", "ab abx"},
		`\{a,b}`:                  {"{a,b}", "a b"},
		"[a-c]?.t":                {"b1.t", "d1.t b.t"},
		"**":                      {"a d/e/f", ""},
		"d/**":                    {"d/a d/e/f", "a"},
		"größe*":                  {"größe.txt", "grosse"},
		strings.Repeat("*a", 400): {strings.Repeat("a", 400), strings.Repeat("a", 399)},
	} {
		g, err := Parse(pattern)
		if err != nil {
			t.Errorf("%s: %v", pattern, err)
			continue
		}
		for _, name := range strings.Fields(c.in) {
			if !g.Matches(name) {
				t.Errorf("%s does not match %s", pattern, name)
			}
		}
		for _, name := range strings.Fields(c.out) {
			if g.Matches(name) {
				t.Errorf("%s matches %s", pattern, name)
			}
		}
	}
	for _, pattern := range []string{"", "/etc/*", "[a", "a/[!", strings.Repeat("a", MaxLength+1), strings.Repeat("{a,b}", 7)} {
		if _, err := Parse(pattern); err == nil {
			t.Errorf("%.20q is accepted", pattern)
		}
	}
}

func TestEnters(t *testing.T) {
	for pattern, c := range map[string]struct{ in, out string }{
		"*.go":        {"d d/e", ""},
		"src/*.go":    {"src", "d src/d"},
		"src/**/*.go": {"src src/d src/d/e", "d d/src"},
		"**/a":        {"d d/e", ""},
		"{a,b/c}/*":   {"a b b/c", "c a/d"},
	} {
		g, err := Parse(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range strings.Fields(c.in) {
			if !g.Enters(dir) {
				t.Errorf("%s does not enter %s", pattern, dir)
			}
		}
		for _, dir := range strings.Fields(c.out) {
			if g.Enters(dir) {
				t.Errorf("%s enters %s", pattern, dir)
			}
		}
	}
}

func FuzzGlob(f *testing.F) {
	f.Add("src/**/*.{go,mod}", "src/a/b.go")
	f.Add("[[:alpha:]-z]{a,{b,c}}\\{", "x")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if g, err := Parse(pattern); err == nil && name == path.Clean(name) && !path.IsAbs(name) {
			if dir := path.Dir(name); g.Matches(name) && strings.Contains(name, "/") && !g.Enters(dir) {
				t.Errorf("%q matches %q, and does not enter %q", pattern, name, dir)
			}
		}
		if r, ok := ParseRule(pattern); ok {
			r.Matches(name, true)
		}
	})
}
