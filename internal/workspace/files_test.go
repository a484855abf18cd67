package workspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func ptr[T any](v T) *T { return &v }

// TestFilesOfAWorkspace lists, describes and changes single files.
func TestFilesOfAWorkspace(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no modes")
	}
	w, dir := fresh(t)
	put(t, w, "a/b/c.txt", "hello")
	put(t, w, "a.txt", "x")
	if err := os.Symlink("/etc", filepath.Join(dir, "a", "link")); err != nil {
		t.Fatal(err)
	}
	paths := func(name string, depth int) []string {
		t.Helper()
		list, err := w.List(t.Context(), name, depth, 100)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range list {
			got = append(got, fmt.Sprintf("%s %s %s", f.Type, f.Path, f.Target))
		}
		return got
	}
	for _, tt := range []struct {
		name  string
		depth int
		want  []string
	}{
		{".", 1, []string{"directory /a ", "file /a.txt "}},
		{"a", 1, []string{"directory /a/b ", "symlink /a/link /etc"}},
		{"a", 2, []string{"directory /a/b ", "file /a/b/c.txt ", "symlink /a/link /etc"}},
		{".", 2, []string{"directory /a ", "file /a.txt ", "directory /a/b ", "symlink /a/link /etc"}},
	} {
		if diff := cmp.Diff(tt.want, paths(tt.name, tt.depth)); diff != "" {
			t.Errorf("%s to depth %d: %s", tt.name, tt.depth, diff)
		}
	}
	f, err := w.Describe("a/b/c.txt")
	if err != nil {
		t.Fatal(err)
	}
	if time.Since(f.Modified) > time.Hour || time.Since(f.Changed) > time.Hour || time.Since(f.Accessed) > time.Hour {
		t.Errorf("times of %+v", f)
	}
	f.Modified, f.Changed, f.Accessed = time.Time{}, time.Time{}, time.Time{}
	if diff := cmp.Diff(sandbox.VolumeFile{Path: "/a/b/c.txt", Type: sandbox.TypeFile, Size: 5, Mode: 0o644, UID: 1000, GID: 1000}, f); diff != "" {
		t.Error(diff)
	}
	if root, err := w.Describe("."); err != nil || root.Path != "/" || root.Type != sandbox.TypeDirectory {
		t.Errorf("%+v, %v", root, err)
	}
	if err := w.SetAttributes("a/b/c.txt", sandbox.VolumeAttributes{Mode: ptr(uint32(0o600)), UID: ptr(1000), GID: ptr(1000)}); err != nil {
		t.Error(err)
	}
	if f, err := w.Describe("a/b/c.txt"); err != nil || f.Mode != 0o600 || f.UID != 1000 {
		t.Errorf("%+v, %v", f, err)
	}
	err = w.SetAttributes("a.txt", sandbox.VolumeAttributes{UID: ptr(1001)})
	if os.Geteuid() == 0 {
		if f, derr := w.Describe("a.txt"); err != nil || derr != nil || f.UID != 1001 || f.GID != 1000 {
			t.Errorf("%+v, %v, %v", f, err, derr)
		}
	} else if !errors.Is(err, sandbox.Unsupported) {
		t.Errorf("an ordinary user gave a file away: %v", err)
	}
	if err := w.MakeDir("new", false); err != nil {
		t.Error(err)
	}
	if err := w.MakeDir("new/x/y", true); err != nil {
		t.Error(err)
	}
	for name, tt := range map[string]struct {
		err  error
		want sandbox.Kind
	}{
		"make again":          {w.MakeDir("new", false), sandbox.Conflict},
		"make below nothing":  {w.MakeDir("no/x", false), sandbox.NotFound},
		"make outside":        {w.MakeDir("../x", true), sandbox.Invalid},
		"make through a link": {w.MakeDir("a/link/x", true), sandbox.Invalid},
		"set-user-ID":         {w.SetAttributes("a.txt", sandbox.VolumeAttributes{Mode: ptr(uint32(0o4755))}), sandbox.Invalid},
		"mode of a link":      {w.SetAttributes("a/link", sandbox.VolumeAttributes{Mode: ptr(uint32(0o755))}), sandbox.Invalid},
		"a large uid":         {w.SetAttributes("a.txt", sandbox.VolumeAttributes{UID: ptr(1 << 20)}), sandbox.Invalid},
		"mode of nothing":     {w.SetAttributes("no", sandbox.VolumeAttributes{Mode: ptr(uint32(0o755))}), sandbox.NotFound},
		"owner of nothing":    {w.SetAttributes("no", sandbox.VolumeAttributes{UID: ptr(1000)}), sandbox.NotFound},
	} {
		if !errors.Is(tt.err, tt.want) {
			t.Errorf("%s: %v, want %s", name, tt.err, tt.want)
		}
	}
	for name, want := range map[string]sandbox.Kind{"no": sandbox.NotFound, "a.txt": sandbox.Invalid, "a/link": sandbox.Invalid, "..": sandbox.Invalid} {
		if _, err := w.List(t.Context(), name, 1, 100); !errors.Is(err, want) {
			t.Errorf("list %s: %v, want %s", name, err, want)
		}
	}
	if _, err := w.List(t.Context(), ".", 3, 3); !errors.Is(err, sandbox.Exhausted) {
		t.Errorf("too many files: %v", err)
	}
	if _, err := os.Stat("/etc/x"); err == nil {
		t.Error("a link led out of the workspace")
	}
}

// TestPathOfAFile describes files whose names begin with dots.
func TestPathOfAFile(t *testing.T) {
	w, _ := fresh(t)
	put(t, w, ".env", "x")
	put(t, w, "..a/.b", "x")
	for name, want := range map[string]string{".": "/", ".env": "/.env", "./.env": "/.env", "..a": "/..a", "..a/.b": "/..a/.b"} {
		if f, err := w.Describe(name); err != nil || f.Path != want {
			t.Errorf("%s: path %q, %v; want %q", name, f.Path, err, want)
		}
	}
	list, err := w.List(t.Context(), ".", 2, 100)
	if err != nil || len(list) != 3 || list[2].Path != "/.env" {
		t.Errorf("the list has %+v, %v", list, err)
	}
}

// TestListIsBounded has lists of few files whose paths, or targets, are long.
func TestListIsBounded(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has paths of 4 KiB")
	}
	w, dir := fresh(t)
	deep := strings.Repeat(strings.Repeat("d", 250)+"/", 14)
	if err := os.MkdirAll(filepath.Join(dir, deep), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 1200 {
		if err := os.WriteFile(filepath.Join(dir, deep, fmt.Sprint(i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "links"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 1200 {
		if err := os.Symlink(strings.Repeat("t", 4000), filepath.Join(dir, "links", fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name  string
		depth int
		want  error
	}{{".", 100, sandbox.Exhausted}, {deep, 1, sandbox.Exhausted}, {"links", 1, sandbox.Exhausted}, {".", 10, sandbox.Exhausted}, {".", 1, nil}, {strings.Repeat("d", 250), 10, nil}} {
		_, err := w.List(t.Context(), tt.name, tt.depth, 10_000)
		if !errors.Is(err, tt.want) || err != nil && !strings.Contains(err.Error(), "list a smaller directory") {
			t.Errorf("%.20s to depth %d: %v, want %v", tt.name, tt.depth, err, tt.want)
		}
	}
}
