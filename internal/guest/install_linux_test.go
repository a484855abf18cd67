package guest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestInstall(t *testing.T) {
	dir := t.TempDir()
	t.Cleanup(func() { os.Chmod(filepath.Join(dir, closedDir), 0o700) })
	scratch := t.TempDir()
	if err := installMain([]string{"--resolver", "10.0.0.1,fd00::1", dir, "1777:" + scratch}); err != nil {
		t.Fatal(err)
	}
	var names []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{closedDir, Program, "group", "passwd", "resolv.conf", linkedResolvers}; !slices.Equal(names, want) {
		t.Errorf("installed are %q, want %q", names, want)
	}
	if text, err := os.ReadFile(filepath.Join(dir, linkedResolvers)); err != nil || !strings.HasPrefix(string(text), "nameserver 10.0.0.1\nnameserver fd00::1\n") {
		t.Errorf("%s: %q, %v", linkedResolvers, text, err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.Stat(self)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.Stat(filepath.Join(dir, Program)); err != nil || got.Size() != want.Size() || got.Mode().Perm() != 0o755 {
		t.Errorf("the program: %v, %v; want %d bytes that anybody can execute", got, err, want.Size())
	}
	if fi, err := os.Stat(filepath.Join(dir, closedDir)); err != nil || fi.Mode().Perm() != 0 {
		t.Errorf("%s: %v, %v; want a directory without permissions", closedDir, fi, err)
	}
	if fi, err := os.Stat(filepath.Join(scratch, "own")); err != nil || fi.Mode() != os.ModeDir|os.ModeSticky|0o777 {
		t.Errorf("a directory for the box: %v, %v", fi, err)
	}
	for _, args := range [][]string{nil, {t.TempDir(), scratch}, {t.TempDir(), "999:" + scratch}, {t.TempDir(), "755:relative"}, {"--resolver", "one", t.TempDir()}} {
		if err := installMain(args); err == nil {
			t.Errorf("install-guest %q succeeds", args)
		}
	}
}
