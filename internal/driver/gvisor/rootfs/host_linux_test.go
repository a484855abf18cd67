package rootfs

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCopyPublic(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	write := func(name string, mode os.FileMode) {
		t.Helper()
		path := filepath.Join(from, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	write("d/public", 0o644)
	write("d/private", 0o640)
	write("d/closed/public", 0o644)
	if err := os.Chmod(filepath.Join(from, "d/closed"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../elsewhere", filepath.Join(from, "d/link")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(from, "d/fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := copyPublic(filepath.Join(from, "d"), filepath.Join(to, "d")); err != nil {
		t.Fatal(err)
	}
	var names []string
	entries, err := os.ReadDir(filepath.Join(to, "d"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"link", "public"}; !slices.Equal(names, want) {
		t.Errorf("copied %q, want %q: only what everybody may read", names, want)
	}
	if err := copyPublic(filepath.Join(from, "none"), filepath.Join(to, "none")); err != nil {
		t.Errorf("copying what is not there: %v", err)
	}
}
