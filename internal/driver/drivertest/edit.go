package drivertest

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// testEdit checks edits and searches of files, which every guest of ours can do. The
// guest's own tests check the details.
func testEdit(t *testing.T, s *suite) {
	b := s.open(t).box(t)
	dir := b.Dir(t)
	b.write(t, dir+"/a.txt", "one\r\ntwo\r\ntwo")
	if s.h.NoPreviews {
		_, err := b.Client.Edit(step(t), dir+"/a.txt", []sandbox.Edit{{Old: "one"}}, asUser)
		wantKind(t, "Edit by an agent that is not ours", err, sandbox.Unsupported)
		_, err = b.Client.Search(step(t), sandbox.SearchRequest{Path: dir, Pattern: "one"}, asUser)
		wantKind(t, "Search by an agent that is not ours", err, sandbox.Unsupported)
		_, err = b.Client.Glob(step(t), dir, "*", 0, asUser)
		wantKind(t, "Glob by an agent that is not ours", err, sandbox.Unsupported)
		return
	}
	t.Run("Edit", func(t *testing.T) { editFile(t, b, dir) })
	t.Run("Search", func(t *testing.T) { searchFiles(t, b, dir+"/tree") })
	t.Run("Hostile", func(t *testing.T) { editHostile(t, b, dir+"/hostile") })
}

func editFile(t *testing.T, b *Box, dir string) {
	name := dir + "/a.txt"
	b.MustRun(t, Cmd{Argv: []string{"sh", "-c", "chmod 750 a.txt && ln a.txt b.txt && ln -s a.txt l.txt"}, Dir: dir})
	before, err := b.Client.Stat(step(t), name, asUser)
	if err != nil {
		t.Fatal(err)
	}
	done, err := b.Client.Edit(step(t), dir+"/l.txt", []sandbox.Edit{{Old: "one\n", New: "eins\nzwei\n"}, {Old: "two", New: "2", All: true}}, asUser)
	if err != nil {
		t.Fatal(err)
	}
	const want = "eins\r\nzwei\r\n2\r\n2"
	if answer := (sandbox.Edited{Replacements: 3, Lines: []int{1, 3}, Size: int64(len(want))}); !reflect.DeepEqual(*done, answer) {
		t.Errorf("Edit: %+v, want %+v", *done, answer)
	}
	for _, n := range []string{"a.txt", "b.txt", "l.txt"} {
		if got := b.read(t, dir+"/"+n); got != want {
			t.Errorf("%s is %q, want %q", n, got, want)
		}
	}
	e, err := b.Client.Stat(step(t), name, asUser)
	if err != nil || e.Mode&0o777 != 0o750 || e.Owner != before.Owner || e.Group != before.Group {
		t.Errorf("after an edit: %+v, %v", e, err)
	}
	for what, edits := range map[string][]sandbox.Edit{
		"no match":        {{Old: "drei", New: "3"}},
		"several matches": {{Old: "2", New: "3"}},
		"a second edit":   {{Old: "eins", New: "1"}, {Old: "drei", New: "3"}},
	} {
		_, err := b.Client.Edit(step(t), name, edits, asUser)
		wantKind(t, "an edit with "+what, err, sandbox.Invalid)
	}
	if got := b.read(t, name); got != want {
		t.Errorf("after edits that do not apply: %q, want %q", got, want)
	}
}

func searchFiles(t *testing.T, b *Box, dir string) {
	for name, text := range map[string]string{
		"src/a.go": "package a\n\nfunc Needle() {}\n", "src/b/c.txt": "needle", ".gitignore": "out\n", "out/x": "needle\n", "bin": "needle\x00",
	} {
		b.write(t, dir+"/"+name, text)
	}
	found, err := b.Client.Search(step(t), sandbox.SearchRequest{Path: dir, Pattern: "(?i)needle", Context: 1}, asUser)
	want := &sandbox.Found{Matches: 2, MatchedFiles: 2, Searched: 3, Binary: 1, Files: []sandbox.FoundFile{
		{Path: dir + "/src/a.go", Lines: []sandbox.FoundLine{{Line: 2}, {Line: 3, Text: "func Needle() {}", Match: true}}},
		{Path: dir + "/src/b/c.txt", Lines: []sandbox.FoundLine{{Line: 1, Text: "needle", Match: true}}},
	}}
	if err != nil || !reflect.DeepEqual(found, want) {
		t.Errorf("Search: %+v, %v; want %+v", found, err, want)
	}
	_, err = b.Client.Search(step(t), sandbox.SearchRequest{Path: dir, Pattern: `(a)\1`}, asUser)
	wantKind(t, "a search for a pattern that RE2 lacks", err, sandbox.Invalid)
	l, err := b.Client.Glob(step(t), dir, "src/**/*.{go,txt}", 0, asUser)
	var names []string
	if err == nil {
		for _, e := range l.Entries {
			names = append(names, strings.TrimPrefix(e.Path, dir+"/"))
		}
	}
	if fmt.Sprint(names) != "[src/a.go src/b/c.txt]" || err != nil || l.Omitted > 0 || l.Cut.Incomplete {
		t.Errorf("Glob: %v, %v", names, err)
	}
}

// editHostile edits and searches what is no text file.
func editHostile(t *testing.T, b *Box, dir string) {
	b.write(t, dir+"/f", "needle\n")
	b.MustRun(t, Cmd{Argv: []string{"sh", "-c", "mkfifo fifo; ln -s /dev/zero zero; ln -s loop loop; ln -s / root; truncate -s 2G big"}, Dir: dir})
	for _, name := range []string{dir, dir + "/fifo", dir + "/zero", dir + "/loop", dir + "/big", "/proc/self/comm", "/dev/null", dir + "/none"} {
		_, err := b.Client.Edit(step(t), name, []sandbox.Edit{{Old: "needle", New: "x"}}, asUser)
		wantRefused(t, "Edit of "+name, err)
	}
	for _, name := range []string{dir + "/fifo", dir + "/zero", "/proc", dir + "/none"} {
		_, err := b.Client.Search(step(t), sandbox.SearchRequest{Path: name, Pattern: "needle"}, asUser)
		wantRefused(t, "Search of "+name, err)
	}
	found, err := b.Client.Search(step(t), sandbox.SearchRequest{Path: dir, Pattern: "(n+e+)+dle$"}, asUser)
	if err != nil || found.Matches != 1 {
		t.Errorf("Search among them: %+v, %v", found, err)
	}
	if _, err := b.Client.Stat(step(t), dir+"/f", guestapi.FileOptions{}); err != nil && !errors.Is(err, sandbox.NotFound) {
		t.Errorf("afterwards: %v", err)
	}
}
