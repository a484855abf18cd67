//go:build unix

package statedir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/atomicfile"
)

// TestRemove removes a state directory with links in it, whose targets stay.
func TestRemove(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "mine")
	if err := os.MkdirAll(filepath.Join(outside, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "state")
	for _, sub := range []string{"logs/sbx", "workspaces/a"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{database, "state.lock", atomicfile.TempPrefix + "123", "logs/sbx/out"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, link := range []string{"images", "workspaces/a/link", "logs/up"} {
		if err := os.Symlink(outside, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := Remove(dir, database); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory is still there: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(outside, "sub")); err != nil {
		t.Errorf("the target of a link is gone: %v", err)
	}
}

// TestRemoveRefuses names directories that are not, or not only, Glovebox's.
func TestRemoveRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		files []string
		want  string
	}{
		"a home directory":                    {[]string{".bashrc", "letter.txt"}, "is not a state directory"},
		"a home directory used by mistake":    {[]string{database, "owners", ".bashrc", "letter.txt"}, "not Glovebox's: .bashrc, letter.txt"},
		"an empty directory":                  {nil, "is not a state directory"},
		"a directory with many foreign files": {[]string{database, "a", "b", "c", "d"}, "a, b, c and others"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, f := range c.files {
				if err := os.WriteFile(filepath.Join(dir, f), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := Remove(dir, database); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			for _, f := range c.files {
				if _, err := os.Lstat(filepath.Join(dir, f)); err != nil {
					t.Errorf("%s is gone", f)
				}
			}
		})
	}
	t.Run("a link", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, database), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(dir, link); err != nil {
			t.Fatal(err)
		}
		if err := Remove(link, database); err == nil || !strings.Contains(err.Error(), "is a link") {
			t.Errorf("%v", err)
		}
	})
	t.Run("a database that is a link", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.Symlink("/etc/passwd", filepath.Join(dir, database)); err != nil {
			t.Fatal(err)
		}
		if err := Remove(dir, database); err == nil {
			t.Error("removed")
		}
	})
	t.Run("nothing", func(t *testing.T) {
		if err := Check(filepath.Join(t.TempDir(), "absent"), database); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v", err)
		}
	})
}
