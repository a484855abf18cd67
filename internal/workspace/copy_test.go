package workspace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/safepath"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestReadListing(t *testing.T) {
	const text = "d 1 4096 8 1700000000.1234567890 dir\x00f 2 10 8 1700000000.5 dir/a b\nc\x00f 2 10 8 1700000000.5 hard\x00l 3 4 0 1700000001 link\xff\x00p 4 0 0 1 pipe\x00"
	s, err := ReadListing(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	want := &Snapshot{
		Usage: sandbox.WorkspaceUsage{Files: 5, Bytes: 2 * 8 * 512},
		files: map[string]stamp{
			"dir/a b\nc": {File: 2, Size: 10, Changed: 1700000000500000000}, "hard": {File: 2, Size: 10, Changed: 1700000000500000000},
			"link\xff": {File: 3, Size: 4, Changed: 1700000001000000000, Link: true},
		},
		dirs: map[string]int64{"dir": 1700000000123456789},
	}
	if diff := cmp.Diff(want, s, cmp.AllowUnexported(Snapshot{}, stamp{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, bad := range []string{
		"f 1 1 1 1 a", "f 1 1 1 1\x00", "f x 1 1 1 a\x00", "f 1 -1 1 1 a\x00", "f 1 1 1 1 ../a\x00", "f 1 1 1 1 /a\x00", "f 1 1 1 1 a/../b\x00",
		"f 1 1 1 1 ..\x00", "f 1 1 1 1.x a\x00", "f 1 1 9999999999999999 1 a\x00", "f 1 1 1 1 .\x00",
	} {
		if _, err := ReadListing(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	deep := "f 1 1 1 1 " + strings.Repeat("a/", safepath.MaxDepth) + "b\x00"
	long := "f 1 1 1 1 " + strings.Repeat("a", 2*safepath.MaxName) + "\x00"
	for _, text := range []string{deep, long} {
		if _, err := ReadListing(strings.NewReader(text)); !errors.Is(err, sandbox.Exhausted) {
			t.Errorf("%.20q…: %v", text, err)
		}
	}
	var lies strings.Builder // together they are more than an int64 holds
	for i := range 32 {
		fmt.Fprintf(&lies, "f %d 1 %d 1 f%d\x00", i, int64(1)<<50, i)
	}
	name := strings.Repeat("a", 4000)
	names := strings.NewReader(strings.Repeat("f 1 1 1 1 "+name+"\x00", maxNames/len(name)+1))
	for what, r := range map[string]io.Reader{"bytes": strings.NewReader(lies.String()), "names": names} {
		if _, err := ReadListing(r); !errors.Is(err, sandbox.Exhausted) {
			t.Errorf("too many %s: %v", what, err)
		}
	}
	many := io.MultiReader(strings.NewReader(strings.Repeat("p 1 0 0 1 a\x00", MaxFiles)), strings.NewReader("p 1 0 0 1 b\x00"))
	if _, err := ReadListing(many); !errors.Is(err, sandbox.Exhausted) {
		t.Errorf("too many: %v", err)
	}
}

func FuzzReadListing(f *testing.F) {
	f.Add([]byte("d 1 4096 8 1700000000.1234567890 dir\x00f 2 10 8 1700000000.5 dir/a\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ReadListing(bytes.NewReader(data))
		if err != nil {
			return
		}
		for name := range s.files {
			if strings.HasPrefix(name, "/") || strings.Contains("/"+name+"/", "/../") || strings.ContainsRune(name, 0) {
				t.Errorf("it has a file %q", name)
			}
		}
		if s.Usage.Bytes < 0 {
			t.Errorf("it has %d bytes", s.Usage.Bytes)
		}
	})
}

func TestDifference(t *testing.T) {
	list := func(entries ...string) *Snapshot {
		var text strings.Builder
		for _, e := range entries {
			kind, name, _ := strings.Cut(e, " ")
			stamp, name, _ := strings.Cut(name, " ")
			fmt.Fprintf(&text, "%s 1 1 1 %s %s\x00", kind, stamp, name)
		}
		s, err := ReadListing(strings.NewReader(text.String()))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	before := list("d 1 d", "f 1 d/a", "f 1 same", "f 1 changed", "f 1 kind", "d 1 gone", "f 1 gone/b", "l 1 tolink")
	after := list("d 2 d", "f 1 d/a", "f 1 same", "f 2 changed", "d 1 kind", "f 1 kind/c", "f 1 tolink")
	changed, gone := Difference(before, after)
	if diff := cmp.Diff([]string{"changed", "kind", "kind/c", "tolink"}, changed); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"gone", "gone/b", "kind"}, gone); diff != "" {
		t.Errorf("gone (-want +got):\n%s", diff)
	}
	merged := before.With(after, append(changed, gone...))
	if c, g := Difference(merged, after); len(c)+len(g) > 0 {
		t.Errorf("after taking it over: %v, %v", c, g)
	}
	if c, _ := Difference(before, before.With(after, nil)); len(c) > 0 {
		t.Errorf("of no names: %v", c)
	}
}
