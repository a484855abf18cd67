//go:build unix

package sealed

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestLoadKey(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	if _, err := LoadKey(path, false); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	// Servers that start at the same time make one key.
	keys := make([]Key, 8)
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			var err error
			if keys[i], err = LoadKey(path, true); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, k := range keys {
		if len(k) != KeySize || !bytes.Equal(k, keys[0]) || bytes.Equal(k, make([]byte, KeySize)) {
			t.Errorf("the keys differ, or are none")
		}
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode() != 0o600 {
		t.Errorf("the file has the mode %v, %v", fi.Mode(), err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left are %v, %v", entries, err)
	}
	refused := func(what, path string) {
		t.Helper()
		if _, err := LoadKey(path, true); sandbox.KindOf(err) != sandbox.Invalid || sandbox.HintOf(err) == "" {
			t.Errorf("%s: %v (hint: %s); want invalid, with a hint", what, err, sandbox.HintOf(err))
		}
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		refused("a file for others", path)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, KeySize - 1, KeySize + 1} {
		other := filepath.Join(dir, "other")
		if err := os.WriteFile(other, make([]byte, n), 0o600); err != nil {
			t.Fatal(err)
		}
		refused("a file of another size", other)
	}
	refused("a directory", dir)
	refused("no directory for it", filepath.Join(dir, "none", "key"))
	if os.Geteuid() != 0 {
		if err := os.Chmod(path, 0); err != nil {
			t.Fatal(err)
		}
		refused("an unreadable file", path)
	}
}
