//go:build unix

package safepath

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestCheckLinks has a kernel that keeps links apart, and one that does not.
func TestCheckLinks(t *testing.T) {
	path := t.TempDir()
	d, err := OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.CheckLinks(); err != nil {
		t.Errorf("on this kernel: %v", err)
	}
	follow := func(_ *os.File, name string) (*os.File, error) { return os.Open(filepath.Join(path, name)) }
	if err := d.checkLinks(follow); !errors.Is(err, ErrFollowsLinks) {
		t.Errorf("on a kernel that follows links: %v, want %v", err, ErrFollowsLinks)
	}
	if left, err := os.ReadDir(path); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
