package state

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const testBox = "sbx_a"

var testFiles = map[string]string{"kernel": "the kernel", "pages": strings.Repeat("page", 4096)}

// written saves a state with testFiles at a new place, which it returns.
func written(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	w, err := New(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for name, text := range testFiles {
		f, err := w.Create(name, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	if Exists(dir) {
		t.Error("there is a state before Commit")
	}
	if !Locked(dir) || Interrupted(dir) {
		t.Errorf("during a save: locked %t, interrupted %t", Locked(dir), Interrupted(dir))
	}
	if err := w.Commit(Manifest{Box: testBox, Key: Key{Program: "p"}}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func verify(dir string) error {
	s, err := Open(dir, testBox, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	return s.Verify()
}

func TestState(t *testing.T) {
	dir := written(t)
	if Locked(dir) || Interrupted(dir) || !Exists(dir) {
		t.Errorf("after a save: locked %t, interrupted %t, exists %t", Locked(dir), Interrupted(dir), Exists(dir))
	}
	s, err := Open(dir, testBox, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Verify(); err != nil {
		t.Error(err)
	}
	files, err := s.Files("kernel", "pages")
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"kernel", "pages"} {
		var got bytes.Buffer
		if _, err := got.ReadFrom(files[i]); err != nil || got.String() != testFiles[name] {
			t.Errorf("%s: %d bytes, %v", name, got.Len(), err)
		}
		fi, err := os.Stat(filepath.Join(dir, name))
		if err != nil || fi.Mode() != 0o600 {
			t.Errorf("%s: %v, %v; want a file of the owner alone", name, fi.Mode(), err)
		}
		// The room that was reserved is free again.
		if blocks := blocksOf(t, filepath.Join(dir, name)); blocks > 64<<10 {
			t.Errorf("%s takes %d bytes of the disk", name, blocks)
		}
	}
	if _, err := s.Files("none"); err == nil {
		t.Error("a file that the state does not have was opened")
	}
	if err := s.Use(); err != nil {
		t.Fatal(err)
	}
	if Exists(dir) || !Locked(dir) || Interrupted(dir) {
		t.Errorf("in use: exists %t, locked %t, interrupted %t", Exists(dir), Locked(dir), Interrupted(dir))
	}
	if err := s.PutBack(); err != nil || verify(dir) != nil {
		t.Errorf("put back: %v, %v", err, verify(dir))
	}
	s.Close()
	again, err := Open(dir, testBox, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(again.Use(), again.Remove()); err != nil || Exists(dir) {
		t.Errorf("removed: %v, exists %t", err, Exists(dir))
	}
	again.Close()
	if Interrupted(dir) {
		t.Error("a removed state is interrupted")
	}
}

// TestInterrupted leaves a save and a restore without an end, as a killed process
// does.
func TestInterrupted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	w, err := New(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	if !Interrupted(dir) || Exists(dir) {
		t.Errorf("a save without an end: interrupted %t, exists %t", Interrupted(dir), Exists(dir))
	}
	if w, err = New(dir, nil); err != nil {
		t.Fatalf("a save after an interrupted one: %v", err)
	}
	if err := w.Discard(); err != nil || Interrupted(dir) {
		t.Errorf("a discarded save: %v, interrupted %t", err, Interrupted(dir))
	}
	used := written(t)
	s, err := Open(used, testBox, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Use(); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if !Interrupted(used) {
		t.Error("a restore without an end is not interrupted")
	}
}

// TestDamaged changes each file at many places, and shortens and lengthens it.
func TestDamaged(t *testing.T) {
	for _, name := range []string{"kernel", "pages", manifestName} {
		dir := written(t)
		path := filepath.Join(dir, name)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		try := func(what string, data []byte) {
			t.Helper()
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := verify(dir); sandbox.KindOf(err) != sandbox.Unavailable || sandbox.HintOf(err) == "" {
				t.Errorf("%s of %s: %v; want unavailable, with a hint", what, name, err)
			}
		}
		for at := 0; at < len(whole); at += max(1, len(whole)/50) {
			changed := bytes.Clone(whole)
			changed[at] ^= 0x20
			try("a changed byte", changed)
			try("the beginning", whole[:at])
		}
		try("more", append(bytes.Clone(whole), 'x'))
		if err := os.WriteFile(path, whole, 0o600); err != nil || verify(dir) != nil {
			t.Errorf("the whole %s: %v, %v", name, err, verify(dir))
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := verify(dir); sandbox.KindOf(err) != sandbox.Unavailable {
			t.Errorf("without %s: %v", name, err)
		}
		if err := os.Symlink("/etc/passwd", path); err != nil {
			t.Fatal(err)
		}
		if err := verify(dir); sandbox.KindOf(err) != sandbox.Unavailable {
			t.Errorf("with a link as %s: %v", name, err)
		}
	}
	if _, err := Open(written(t), "sbx_b", nil); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("the state of another box: %v", err)
	}
}

func TestKey(t *testing.T) {
	k := Key{"a", "b", "c", "d", "e"}
	if err := k.Check(k); err != nil {
		t.Error(err)
	}
	for i, other := range []Key{{"x", "b", "c", "d", "e"}, {"a", "x", "c", "d", "e"}, {"a", "b", "x", "d", "e"}, {"a", "b", "c", "x", "e"}, {"a", "b", "c", "d", "x"}} {
		if err := k.Check(other); sandbox.KindOf(err) != sandbox.Unavailable || sandbox.HintOf(err) == "" {
			t.Errorf("key %d: %v", i, err)
		}
	}
}

func TestHostFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "lib.so")
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := HostFileAt(path)
	if err != nil {
		t.Fatal(err)
	}
	m := &Manifest{Host: []HostFile{f}, Needed: []string{"/data/d/f", "/data"}}
	if err := m.CheckHost(); err != nil {
		t.Error(err)
	}
	// A package manager renames another file into the place.
	if err := errors.Join(os.WriteFile(path+".new", []byte("new"), 0o644), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
	if err := m.CheckHost(); sandbox.KindOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), path) {
		t.Errorf("a changed file: %v", err)
	}
	if err := m.CheckNeeded(dir, "/data"); err == nil || !strings.Contains(err.Error(), "/data/d/f") {
		t.Errorf("a missing file of the workspace: %v", err)
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "d"), 0o755), os.WriteFile(filepath.Join(dir, "d/f"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := m.CheckNeeded(dir, "/data"); err != nil {
		t.Error(err)
	}
}

// TestNoRoom reserves more than any disk has.
func TestNoRoom(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	w, err := New(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Create("pages", 1<<50); err == nil {
		t.Error("room for a pebibyte was reserved")
	}
	if err := w.Discard(); err != nil || Interrupted(dir) || Exists(dir) {
		t.Errorf("a save without room left something: %v", err)
	}
}

// TestSwapped exchanges files between states, and whole states between boxes.
func TestSwapped(t *testing.T) {
	a, b := written(t), written(t)
	other := filepath.Join(b, "pages")
	text := strings.Repeat("PAGE", 4096) // as long as the original
	if err := os.WriteFile(other, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(other, filepath.Join(a, "pages")); err != nil {
		t.Fatal(err)
	}
	if err := verify(a); sandbox.KindOf(err) != sandbox.Unavailable || sandbox.HintOf(err) == "" {
		t.Errorf("with another state's pages: %v", err)
	}
	c := written(t)
	kernel, pages := filepath.Join(c, "kernel"), filepath.Join(c, "pages")
	if err := errors.Join(os.Rename(kernel, kernel+".x"), os.Rename(pages, kernel), os.Rename(kernel+".x", pages)); err != nil {
		t.Fatal(err)
	}
	if err := verify(c); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("with its files exchanged: %v", err)
	}
	if _, err := Open(written(t), "sbx_b", nil); sandbox.KindOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), "another sandbox") {
		t.Errorf("in the place of another box: %v", err)
	}
}

// TestKeyAt reads the key of a state in its place and of one in use.
func TestKeyAt(t *testing.T) {
	none := filepath.Join(t.TempDir(), "state")
	if keys, err := KeysAt(none); err != nil || len(keys) > 0 {
		t.Errorf("without a state: %v, %v", keys, err)
	}
	dir := written(t)
	check := func(when string) {
		t.Helper()
		if keys, err := KeysAt(dir); err != nil || len(keys) != 1 || keys[0].Program != "p" {
			t.Errorf("%s: %v, %v", when, keys, err)
		}
	}
	check("in its place")
	if k, err := KeyAt(dir); err != nil || k.Program != "p" {
		t.Errorf("key %v, %v", k, err)
	}
	s, err := Open(dir, testBox, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Use(); err != nil {
		t.Fatal(err)
	}
	check("in use")
	if err := s.PutBack(); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, manifestName), 10); err != nil {
		t.Fatal(err)
	}
	if _, err := KeysAt(dir); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("of a damaged state: %v", err)
	}
}
