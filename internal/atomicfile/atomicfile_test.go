package atomicfile

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

// holds checks that a directory has one file, of that name, content and mode.
func holds(t *testing.T, dir, name, content string, mode fs.FileMode) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != name {
		t.Fatalf("the directory has %v, %v; want %s alone", entries, err, name)
	}
	got, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil || string(got) != content {
		t.Errorf("%s holds %q, %v; want %q", name, got, err, content)
	}
	if fi, err := entries[0].Info(); err != nil || runtime.GOOS != "windows" && fi.Mode() != mode {
		t.Errorf("%s has mode %v, %v; want %v", name, fi.Mode(), err, mode)
	}
}

func TestReplace(t *testing.T) {
	for name, replace := range map[string]func(string, []byte, fs.FileMode) error{"Replace": Replace, "ReplaceDurably": ReplaceDurably} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "f")
			for i, mode := range []fs.FileMode{0o600, 0o755, 0o600} {
				content := fmt.Sprint("content ", i)
				if err := replace(path, []byte(content), mode); err != nil {
					t.Fatal(err)
				}
				holds(t, dir, "f", content, mode)
			}
		})
	}
}

// TestFailure has a file that cannot be put in its place.
func TestFailure(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.MkdirAll(filepath.Join(path, "below"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Replace(path, []byte("x"), 0o600); err == nil {
		t.Error("a file took the place of a directory")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
	if err := Replace(filepath.Join(dir, "absent", "f"), nil, 0o600); err == nil {
		t.Error("a file was written where there is no directory")
	}
	if _, err := Once(filepath.Join(dir, "absent", "f"), nil, 0o600); err == nil {
		t.Error("a file was written once where there is no directory")
	}
}

// TestOnce has many write one file at the same time.
func TestOnce(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	got := make([][]byte, 50)
	var all sync.WaitGroup
	for i := range got {
		all.Go(func() {
			var err error
			if got[i], err = Once(path, fmt.Append(nil, "content ", i), 0o600); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, g := range got {
		if !bytes.Equal(g, got[0]) || len(g) == 0 {
			t.Fatalf("one got %q, another %q", got[0], g)
		}
	}
	holds(t, dir, "f", string(got[0]), 0o600)
	if again, err := Once(path, []byte("other"), 0o600); err != nil || !bytes.Equal(again, got[0]) {
		t.Errorf("later it is %q, %v", again, err)
	}
}
