package guestbin

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func TestMaterialise(t *testing.T) {
	dir := t.TempDir()
	content := bytes.Repeat([]byte("guest"), 100_000)

	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			path, err := materialise(dir, content)
			if err != nil {
				t.Errorf("materialise: %v", err)
				return
			}
			got, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(got, content) {
				t.Errorf("read %s: %d bytes, %v; want %d bytes", path, len(got), err, len(content))
			}
		})
	}
	wg.Wait()

	path, err := materialise(dir, content)
	if err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if fi.Mode().Perm() != 0o755 {
		t.Errorf("mode %v, want 0755", fi.Mode().Perm())
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".new-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("temporary files left: %v, %v", left, err)
	}
}

func TestMaterialiseRepairs(t *testing.T) {
	dir := t.TempDir()
	path, err := materialise(dir, []byte("whole"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("wh"), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := materialise(dir, []byte("whole"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(again)
	if err != nil || string(got) != "whole" || again != path {
		t.Errorf("got %q at %s, %v; want %q at %s", got, again, err, "whole", path)
	}
}

func TestMaterialiseVersionsApart(t *testing.T) {
	dir := t.TempDir()
	one, err := materialise(dir, []byte("one"))
	if err != nil {
		t.Fatal(err)
	}
	two, err := materialise(dir, []byte("two"))
	if err != nil {
		t.Fatal(err)
	}
	if one == two {
		t.Errorf("both versions at %s", one)
	}
}

func TestPathWithoutEmbeddedGuest(t *testing.T) {
	if Embedded() {
		t.Skip("built with an embedded guest")
	}
	got, err := Path(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(got); err != nil || !filepath.IsAbs(got) || fi.Mode()&0o111 == 0 {
		t.Errorf("Path = %q, not an absolute path of a program: %v", got, err)
	}
}

// TestMaterialiseAtOnce writes the guest from several processes' starts at once. No
// start replaces the file of another, which may be mounting it.
func TestMaterialiseAtOnce(t *testing.T) {
	content := bytes.Repeat([]byte("guest"), 1_000_000)
	for range 5 {
		dir := t.TempDir()
		var all sync.WaitGroup
		files := make([]os.FileInfo, 8)
		for i := range files {
			all.Go(func() {
				path, err := materialise(dir, content)
				if err != nil {
					t.Error(err)
					return
				}
				if files[i], err = os.Stat(path); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		for _, fi := range files {
			if !os.SameFile(fi, files[0]) {
				t.Fatal("a start replaced the file of another")
			}
		}
	}
}
