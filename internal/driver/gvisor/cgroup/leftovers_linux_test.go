package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestEmptyGroups has directories for control groups, which are removed whole.
func TestEmptyGroups(t *testing.T) {
	parent := t.TempDir()
	empty, busy, own := sandbox.NewID(), sandbox.NewID(), sandbox.NewID()
	for _, name := range []string{empty, busy, own, "glovebox-server"} {
		if err := os.Mkdir(filepath.Join(parent, name), 0o755); err != nil {
			t.Fatal(err)
		}
		// A group has this file always; in a test it would keep the directory.
		if name == busy {
			if err := os.WriteFile(filepath.Join(parent, name, "cgroup.procs"), []byte("1\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if err := os.Symlink("/dev/null", filepath.Join(parent, name, "cgroup.procs")); err != nil {
			t.Fatal(err)
		}
	}
	parents, keep := []string{parent, filepath.Join(parent, "none")}, []string{own}
	if names, err := Empty(parents, keep, time.Now().Add(-time.Minute), false); len(names) > 0 || err != nil {
		t.Errorf("of groups that were just made: %q, %v", names, err)
	}
	later := time.Now().Add(time.Minute)
	want := []string{"control group " + filepath.Join(parent, empty)}
	if names, err := Empty(parents, keep, later, false); !slices.Equal(names, want) || err != nil {
		t.Errorf("got %q, %v; want %q", names, err, want)
	}
	if names, err := Empty(parents, keep, later, true); len(names) > 0 || err == nil {
		t.Errorf("a group that cannot be removed: %q, %v", names, err)
	}
	if err := os.Remove(filepath.Join(parent, empty, "cgroup.procs")); err != nil {
		t.Fatal(err)
	}
	if names, err := Empty(parents, keep, later, true); len(names) > 0 || err != nil {
		t.Errorf("what is no control group: %q, %v", names, err)
	}
}
