package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/safepath"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func openSet(t testing.TB, dir string) *Set {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// fresh returns a new workspace, and the path of its directory.
func fresh(t testing.TB) (*Workspace, string) {
	t.Helper()
	s := openSet(t, t.TempDir())
	id := NewID()
	if made, err := s.Make(id); err != nil || !made {
		t.Fatalf("Make: %t, %v", made, err)
	}
	w, err := s.Open(id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w, s.Path(id)
}

func put(t testing.TB, w *Workspace, name, text string) {
	t.Helper()
	if _, err := w.Write(t.Context(), name, strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
}

func get(w *Workspace, name string) (string, error) {
	f, _, err := w.Read(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	return string(b), err
}

func TestIDs(t *testing.T) {
	dir := t.TempDir()
	a, b := openSet(t, dir), openSet(t, dir)
	if !bytes.Equal(a.Key("x"), b.Key("x")) || bytes.Equal(a.Key("x"), a.Key("y")) {
		t.Error("keys are not one for each purpose")
	}
	if id, again := NewID(), NewID(); id == again || !ValidID(string(id)) || !ValidID(string(again)) {
		t.Errorf("IDs %q and %q", id, again)
	}
	if id, ok := a.Conversation("p", "n"); ok {
		t.Errorf("a set without conversations has one: %s", id)
	}
	for _, bad := range []ID{"", "..", "../x", ID(strings.Repeat("g", 64)), ID(strings.Repeat("A", 64)), "tmp", "secret"} {
		if _, err := a.Open(bad); !errors.Is(err, sandbox.NotFound) {
			t.Errorf("Open(%q): %v", bad, err)
		}
		if _, err := a.Make(bad); err == nil {
			t.Errorf("Make(%q) made something", bad)
		}
		if _, err := a.Remove(bad); err == nil {
			t.Errorf("Remove(%q) removed something", bad)
		}
	}
}

func TestLife(t *testing.T) {
	dir := t.TempDir()
	s := openSet(t, dir)
	id := NewID()
	if _, err := s.Open(id); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("before it is made: %v", err)
	}
	if made, err := s.Make(id); err != nil || !made {
		t.Fatal(made, err)
	}
	if made, err := s.Make(id); err != nil || made {
		t.Errorf("again: %t, %v", made, err)
	}
	w, err := s.Open(id)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	put(t, w, "a/b", "text")
	purge, err := s.Remove(id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(id); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("after its removal: %v", err)
	}
	if err := purge(); err != nil {
		t.Error(err)
	}
	if purge, err := s.Remove(id); err != nil || purge() != nil {
		t.Errorf("again: %v", err)
	}
}

// TestStale has a process that died while it wrote and while it removed.
func TestStale(t *testing.T) {
	dir := t.TempDir()
	s := openSet(t, dir)
	left := filepath.Join(dir, "tmp", "DEAD")
	if err := os.MkdirAll(filepath.Join(left, "removed-x", "a/b"), 0o755); err != nil {
		t.Fatal(err)
	}
	os.WriteFile(filepath.Join(left, "new-y"), []byte("half"), 0o644)
	os.Symlink(dir, filepath.Join(left, "link"))
	long := time.Now().Add(-30 * 24 * time.Hour) // all that Windows goes by
	if err := os.Chtimes(left, long, long); err != nil {
		t.Fatal(err)
	}
	id := NewID()
	if _, err := s.Make(id); err != nil {
		t.Fatal(err)
	}
	openSet(t, dir)
	if _, err := os.Lstat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what a dead process left: %v", err)
	}
	for _, live := range []string{s.temp, s.Path(id), filepath.Join(dir, "secret")} {
		if _, err := os.Lstat(live); err != nil {
			t.Errorf("%s of a live process: %v", live, err)
		}
	}
}

func TestWrite(t *testing.T) {
	w, _ := fresh(t)
	put(t, w, "f", "old")
	broken := io.MultiReader(strings.NewReader("new"), errReader{})
	if _, err := w.Write(t.Context(), "f", broken); !errors.Is(err, errBroken) {
		t.Errorf("a broken upload: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := w.Write(ctx, "f", io.MultiReader(strings.NewReader("new"), cancelReader{cancel})); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled upload: %v", err)
	}
	if got, err := get(w, "f"); err != nil || got != "old" {
		t.Errorf("after both: %q, %v", got, err)
	}
	for name, kind := range map[string]sandbox.Kind{
		"": sandbox.Invalid, "..": sandbox.Invalid, "../x": sandbox.Invalid, "/x": sandbox.Invalid, "a\x00": sandbox.Invalid,
		"\xff": sandbox.Invalid, strings.Repeat("x", 5000): sandbox.Invalid, ".": sandbox.Invalid, "f/x": sandbox.Invalid,
	} {
		_, err := w.Write(t.Context(), name, strings.NewReader("x"))
		if sandbox.KindOf(err) != kind {
			t.Errorf("Write(%s): %v, want kind %s", safepath.Show(name), err, kind)
		}
		if _, err := get(w, name); err == nil {
			t.Errorf("Read(%s) reads", safepath.Show(name))
		}
	}
	if _, err := get(w, "absent"); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("read what is not there: %v", err)
	}
	if err := w.Delete("absent"); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("delete what is not there: %v", err)
	}
	if err := w.Delete("f"); err != nil {
		t.Error(err)
	}
}

var errBroken = errors.New("broken")

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errBroken }

type cancelReader struct{ cancel func() }

func (c cancelReader) Read([]byte) (int, error) {
	c.cancel()
	return 0, io.EOF
}

// link makes a symbolic link, which Windows allows not everybody.
func link(t *testing.T, target, name string) {
	t.Helper()
	err := os.Symlink(target, name)
	if err == nil {
		_, err = os.Readlink(name)
	}
	if err != nil && runtime.GOOS == "windows" {
		t.Skipf("no links here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestOthers has a sandbox plant links to what is another's.
func TestOthers(t *testing.T) {
	s := openSet(t, t.TempDir())
	var ws []*Workspace
	for range 2 {
		id := NewID()
		if _, err := s.Make(id); err != nil {
			t.Fatal(err)
		}
		w, err := s.Open(id)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		ws = append(ws, w)
	}
	put(t, ws[1], "secret", "b's")
	mine := s.Path(ws[0].ID)
	for name, target := range map[string]string{
		"abs": s.Path(ws[1].ID), "rel": "../" + string(ws[1].ID), "key": "../secret", "tmp": "../tmp", "loop": "loop",
	} {
		link(t, target, filepath.Join(mine, name))
	}
	for _, name := range []string{"abs/secret", "rel/secret", "key", "tmp/x", "loop", "loop/x"} {
		if got, err := get(ws[0], name); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("read %s: %q, %v; want kind invalid", name, got, err)
		}
		if name == "key" || name == "loop" {
			continue // a write replaces the link
		}
		if _, err := ws[0].Write(t.Context(), name, strings.NewReader("evil")); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("write %s: %v; want kind invalid", name, err)
		}
	}
	if got, err := get(ws[1], "secret"); err != nil || got != "b's" {
		t.Errorf("the other's file: %q, %v", got, err)
	}
}

func TestExportImport(t *testing.T) {
	w, dir := fresh(t)
	put(t, w, "a/b", "text")
	link(t, "a/b", filepath.Join(dir, "link"))
	var b bytes.Buffer
	if _, err := w.Export(t.Context(), &b, 0); err != nil {
		t.Fatal(err)
	}
	v, _ := fresh(t)
	n, err := v.Import(t.Context(), &b, 0, 0)
	if err != nil || n.Files != 1 || n.Links != 1 {
		t.Fatalf("%+v, %v", n, err)
	}
	if got, err := get(v, "link"); err != nil || got != "text" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := v.Import(t.Context(), strings.NewReader("no archive"), 0, 0); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("what is no archive: %v", err)
	}
}

func TestChanges(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no time of a change there that programs cannot set")
	}
	w, dir := fresh(t)
	for _, name := range []string{"same", "touched", "edited", "sneaky", "replaced", "gone", "dir/gone", "dir/same", "moved"} {
		put(t, w, name, "before")
	}
	before := snapshot(t, w)
	time.Sleep(2 * Tick) // the file system's clock is no finer, and cannot be faked
	since := Clock()
	edit := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	edit("edited", "and after")
	edit("new", "x")
	// A program can set back size and time, but not that something happened.
	fi, _ := os.Stat(filepath.Join(dir, "sneaky"))
	edit("sneaky", "BEFORE")
	os.Chtimes(filepath.Join(dir, "sneaky"), fi.ModTime(), fi.ModTime())
	os.Chtimes(filepath.Join(dir, "touched"), time.Now(), time.Unix(1, 0))
	os.Remove(filepath.Join(dir, "replaced"))
	edit("replaced", "before")
	os.Remove(filepath.Join(dir, "gone"))
	os.Remove(filepath.Join(dir, "dir/gone"))
	os.Rename(filepath.Join(dir, "moved"), filepath.Join(dir, "dir/moved"))
	os.Mkdir(filepath.Join(dir, "empty"), 0o755)
	os.Symlink("same", filepath.Join(dir, "link"))
	os.WriteFile(filepath.Join(dir, "bad\xffname"), nil, 0o644)

	after := snapshot(t, w)
	got := Changes(before, after, since, 100)
	want := sandbox.Changes{Created: 4, Modified: 4, Removed: 3, Files: []sandbox.FileChange{
		{Path: "bad\uFFFDname", Change: sandbox.FileCreated},
		{Path: "dir/moved", Size: 6, Change: sandbox.FileCreated},
		{Path: "link", Size: 4, Change: sandbox.FileCreated},
		{Path: "new", Size: 1, Change: sandbox.FileCreated},
		{Path: "edited", Size: 9, Change: sandbox.FileModified},
		{Path: "replaced", Size: 6, Change: sandbox.FileModified},
		{Path: "sneaky", Size: 6, Change: sandbox.FileModified},
		{Path: "touched", Size: 6, Change: sandbox.FileModified},
		{Path: "dir/gone", Change: sandbox.FileRemoved},
		{Path: "gone", Change: sandbox.FileRemoved},
		{Path: "moved", Change: sandbox.FileRemoved},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	capped := Changes(before, after, since, 2)
	if len(capped.Files) != 2 || capped.Omitted != 9 || capped.Created != 4 {
		t.Errorf("with a limit of 2: %+v", capped)
	}
	// What happened before is not this run's.
	time.Sleep(2 * Tick)
	if c := Changes(before, snapshot(t, w), Clock(), 100); c.Created+c.Modified > 0 {
		t.Errorf("changes from before the time: %+v", c)
	}
}

func snapshot(t testing.TB, w *Workspace) *Snapshot {
	t.Helper()
	s, err := w.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestMeasure(t *testing.T) {
	w, dir := fresh(t)
	for i := range 10 {
		put(t, w, fmt.Sprintf("d/%d", i), strings.Repeat("x", 10_000))
	}
	f, _ := os.Create(filepath.Join(dir, "sparse"))
	if runtime.GOOS != "windows" { // where a hole counts in full
		f.Truncate(1 << 33)
	}
	f.Close()
	u, err := w.Measure(t.Context())
	if err != nil || u.Files != 12 || u.Bytes < 100_000 || u.Bytes > 400_000 {
		t.Errorf("%+v, %v", u, err)
	}
	if !u.Exceeds(sandbox.WorkspaceUsage{Files: 11}) || !u.Exceeds(sandbox.WorkspaceUsage{Bytes: 99_999}) || u.Exceeds(sandbox.WorkspaceUsage{}) {
		t.Error("Exceeds")
	}
}

func BenchmarkSnapshot(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			w, dir := fresh(b)
			for i := range n {
				if i%100 == 0 {
					os.MkdirAll(filepath.Join(dir, fmt.Sprint(i/100)), 0o755)
				}
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i/100), fmt.Sprint(i)), nil, 0o644); err != nil {
					b.Fatal(err)
				}
			}
			before := snapshot(b, w)
			for b.Loop() {
				Changes(before, snapshot(b, w), time.Now(), 100)
			}
		})
	}
}
