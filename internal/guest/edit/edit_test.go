package edit

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestApply(t *testing.T) {
	one := func(old, new string) []sandbox.Edit { return []sandbox.Edit{{Old: old, New: new}} }
	every := func(old, new string) []sandbox.Edit { return []sandbox.Edit{{Old: old, New: new, All: true}} }
	utf16le := "\xff\xfea\x00\r\x00\n\x00\x3d\xd8\x00\xde"
	for what, c := range map[string]struct {
		text  string
		edits []sandbox.Edit
		want  string
		done  sandbox.Edited
	}{
		"one":                      {"a\nb\nc", one("b", "x\ny"), "a\nx\ny\nc", sandbox.Edited{Replacements: 1, Lines: []int{2}}},
		"removed":                  {"a\nb\nc\n", one("b\n", ""), "a\nc\n", sandbox.Edited{Replacements: 1, Lines: []int{2}}},
		"all":                      {"aaaa", every("aa", "b"), "bb", sandbox.Edited{Replacements: 2, Lines: []int{1}}},
		"the result of the first":  {"a", append(one("a", "b b"), one("b b", "c")...), "c", sandbox.Edited{Replacements: 2, Lines: []int{1, 1}}},
		"no newline at the end":    {"a\nb", one("b", "c"), "a\nc", sandbox.Edited{Replacements: 1, Lines: []int{2}}},
		"byte order mark":          {"\ufeffa\n", one("a", "b"), "\ufeffb\n", sandbox.Edited{Replacements: 1, Lines: []int{1}}},
		"CRLF":                     {"a\r\nb\r\nc\r\n", one("a\nb\n", "x\ny\nz\n"), "x\r\ny\r\nz\r\nc\r\n", sandbox.Edited{Replacements: 1, Lines: []int{1}}},
		"CRLF from its end":        {"a\r\nb\r\n", one("\nb", "\nc\nd"), "a\r\nc\r\nd\r\n", sandbox.Edited{Replacements: 1, Lines: []int{1}}},
		"CRLF, all ends":           {"a\r\nb\r\nc\n", every("\n", ";\n"), "a;\r\nb;\r\nc;\n", sandbox.Edited{Replacements: 3, Lines: []int{1}}},
		"CRLF and a line":          {"a\r\nb\r\n", one("b", "c\nd"), "a\r\nc\r\nd\r\n", sandbox.Edited{Replacements: 1, Lines: []int{2}}},
		"LF among CRLF":            {"a\nb\r\nc\r\n", one("a\nb", "x\ny"), "x\ny\r\nc\r\n", sandbox.Edited{Replacements: 1, Lines: []int{1}}},
		"both in one match":        {"a\nb\r\nc\nd\r\n", one("a\nb\nc\n", "x\n"), "x\r\nd\r\n", sandbox.Edited{Replacements: 1, Lines: []int{1}}},
		"CRLF among LF":            {"a\nb\nc\r\n", one("a", "x\ny"), "x\ny\nb\nc\r\n", sandbox.Edited{Replacements: 1, Lines: []int{1}}},
		"to LF":                    {"a\r\nb", one("a\r\n", "a\n"), "a\nb", sandbox.Edited{Replacements: 1, Lines: []int{1}}},
		"only a carriage return":   {"a\rb\r\r\nc", one("b\r\nc", "d\r\n"), "a\rb\r\r\nc", sandbox.Edited{}},
		"bytes that are not UTF-8": {"\xff\x00a\xfe", one("a", "ä"), "\xff\x00ä\xfe", sandbox.Edited{Replacements: 1, Lines: []int{1}}},
		"UTF-16":                   {utf16le, one("a\n😀", "b\nü😀"), "\xff\xfeb\x00\r\x00\n\x00\xfc\x00\x3d\xd8\x00\xde", sandbox.Edited{Replacements: 1, Lines: []int{1}}},
		"UTF-16, big endian":       {"\xfe\xff\x00a\x00b", one("b", "c"), "\xfe\xff\x00a\x00c", sandbox.Edited{Replacements: 1, Lines: []int{1}}},
	} {
		before := strings.Clone(c.text)
		got, done, err := Apply([]byte(c.text), c.edits)
		if c.done.Replacements == 0 {
			if err == nil {
				t.Errorf("%s: got %q, want an error", what, got)
			}
			continue
		}
		c.done.Size = int64(len(c.want))
		if err != nil || string(got) != c.want {
			t.Errorf("%s: got %q, %v; want %q", what, got, err, c.want)
		}
		if diff := cmp.Diff(c.done, done); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
		if c.text != before {
			t.Errorf("%s: the old contents changed", what)
		}
	}
}

func TestRefused(t *testing.T) {
	long := strings.Repeat("x", 1000)
	file := "package a\n\nfunc one() {\n\treturn 1\n}\n\nfunc two() {\n\treturn 2\n}\n"
	for what, c := range map[string]struct {
		text  string
		edits []sandbox.Edit
		index int
		want  string
	}{
		"several":             {"a\nb\na\na", []sandbox.Edit{{Old: "a"}}, 0, "old_string: 3 matches, at lines 1, 3, 4. Add lines around the right one, or set replace_all"},
		"many":                {strings.Repeat("a\n", 99), []sandbox.Edit{{Old: "a\n"}}, 0, "old_string: 99 matches, at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and further"},
		"overlapping":         {"aaa", []sandbox.Edit{{Old: "aa"}}, 0, "old_string: 2 matches, at lines 1, 1."},
		"several by CRLF":     {"a\r\nb\na\nb\n", []sandbox.Edit{{Old: "a\nb"}}, 0, "old_string: 2 matches, at lines 1, 3."},
		"the second":          {"a", []sandbox.Edit{{Old: "a", New: "b"}, {Old: "a"}}, 1, "old_string: 0 matches."},
		"indentation":         {file, []sandbox.Edit{{Old: "func two() {\n    return 2\n}"}}, 0, `0 matches. Line 7 differs only in white space, first in line 8: the file has "\treturn 2"`},
		"a later line":        {file, []sandbox.Edit{{Old: "func two() {\n\treturn 3\n"}}, 0, `At line 7 its first line is in the file, and line 8 differs: the file has "\treturn 2", old_string has "\treturn 3"`},
		"like":                {file, []sandbox.Edit{{Old: "func tow() {"}}, 0, `The nearest lines: 7: "func two() {"; 3: "func one() {"`},
		"a part of a line":    {"if err := open(name, flags); err != nil {\n", []sandbox.Edit{{Old: "opem(name"}}, 0, `The nearest lines: 1: "if err`},
		"line endings":        {"a\nb\n", []sandbox.Edit{{Old: "a\r\nb"}}, 0, "Line 1 differs only in its line endings"},
		"nothing":             {file, []sandbox.Edit{{Old: "SELECT"}}, 0, `No line is like its first line "SELECT"`},
		"an empty file":       {"", []sandbox.Edit{{Old: "a"}}, 0, "The file is empty"},
		"a long line":         {long, []sandbox.Edit{{Old: long + "y"}}, 0, "…"},
		"too large":           {strings.Repeat("a", 1<<20), []sandbox.Edit{{Old: "a", New: long, All: true}}, 0, "new_string: the file would have 1048576000 bytes"},
		"UTF-32":              {"\xff\xfe\x00\x00a\x00\x00\x00", []sandbox.Edit{{Old: "a"}}, 0, "path: the file is UTF-32"},
		"not quite UTF-16":    {"\xff\xfea", []sandbox.Edit{{Old: "a"}}, 0, "path: the file begins like UTF-16"},
		"half of a surrogate": {"\xff\xfe\x3d\xd8", []sandbox.Edit{{Old: "a"}}, 0, "path: the file begins like UTF-16"},
	} {
		got, _, err := Apply([]byte(c.text), c.edits)
		var e *Error
		if !errors.As(err, &e) || e.Index != c.index || !strings.Contains(err.Error(), c.want) || got != nil {
			t.Errorf("%s: %.40q, %v; want edit %d, %q", what, got, err, c.index, c.want)
		}
		if err != nil && len(err.Error()) > 1000 {
			t.Errorf("%s: the error has %d bytes", what, len(err.Error()))
		}
	}
}

// TestNearBounded: an error about the largest files and texts is short. Without the
// bounds on lines, the second file needs 24 bytes of memory for each.
func TestNearBounded(t *testing.T) {
	for _, line := range []string{"x", "\n", "x\n", "ab cd ef\n", "\r\n"} {
		text := bytes.Repeat([]byte(line), sandbox.MaxEditFile/len(line))
		old := strings.Repeat(line, 1000) + "y"
		if _, _, err := Apply(text, []sandbox.Edit{{Old: old}}); err == nil || len(err.Error()) > 1000 {
			t.Errorf("%q: %.100v", line, err)
		}
	}
}

// FuzzApply: an edit of one match changes nothing else, and can be undone.
func FuzzApply(f *testing.F) {
	f.Add("a\r\nb\nc", "a\nb", "x\ny")
	f.Add("\xff\xfea\x00b\x00", "b", "c")
	f.Add("aXa", "X", "")
	f.Fuzz(func(t *testing.T, text, old, new string) {
		if old == "" || !utf8.ValidString(old) || !utf8.ValidString(new) {
			return
		}
		got, done, err := Apply([]byte(text), []sandbox.Edit{{Old: old, New: new}})
		if err != nil {
			if got != nil || done.Replacements > 0 {
				t.Fatalf("both a result and an error: %q, %v", got, err)
			}
			return
		}
		if done.Replacements != 1 || done.Size != int64(len(got)) {
			t.Fatalf("%+v, %d bytes", done, len(got))
		}
		if strings.Contains(text, "\r") || strings.HasPrefix(text, "\xff\xfe") || strings.HasPrefix(text, "\xfe\xff") {
			return
		}
		if want := strings.Replace(text, old, new, 1); string(got) != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}
