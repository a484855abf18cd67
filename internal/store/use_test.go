package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestRemovalExcludesUse checks that a state directory is not removed while a Store
// is open, and not used while it is removed.
func TestRemovalExcludesUse(t *testing.T) {
	dir := t.TempDir()
	open := func(r *Removal) (*Store, error) {
		return Open(t.Context(), Options{Dir: dir, Removal: r})
	}
	a, err := open(nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := open(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := LockForRemoval(dir); !errors.Is(err, sandbox.Conflict) || sandbox.HintOf(err) == "" {
		t.Errorf("removal of a directory in use: %v", err)
	}
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Fatal(err)
	}
	r, err := LockForRemoval(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := LockForRemoval(dir); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("two removals at the same time: %v", err)
	}
	if _, err := open(nil); !errors.Is(err, sandbox.Unavailable) || sandbox.HintOf(err) == "" {
		t.Errorf("a store of a directory that is being removed: %v", err)
	}
	own, err := open(r)
	if err != nil {
		t.Fatalf("the removal's own store: %v", err)
	}
	if err := errors.Join(own.Close(), r.Release(), r.Release()); err != nil {
		t.Fatal(err)
	}
	after, err := open(nil)
	if err != nil {
		t.Fatalf("a store after a removal that was given up: %v", err)
	}
	if err := after.Close(); err != nil {
		t.Error(err)
	}
}

// TestUseOfNewFile locks the file that has the name, not one that was removed.
func TestUseOfNewFile(t *testing.T) {
	dir := t.TempDir()
	old, err := lockUse(dir, exclusive)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if err := os.Remove(filepath.Join(dir, useName)); err != nil {
		t.Skip("this system does not remove an open file:", err)
	}
	f, err := lockUse(dir, exclusive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	there, err := os.Stat(filepath.Join(dir, useName))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := f.Stat(); err != nil || !os.SameFile(got, there) {
		t.Errorf("the lock is of another file: %v", err)
	}
}
