//go:build unix

package statedir

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// database is the file by which a state directory is known.
const database = "state.db"

func TestStateDir(t *testing.T) {
	mode := func(t *testing.T, dir string) os.FileMode {
		t.Helper()
		fi, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		return fi.Mode().Perm()
	}
	mk := func(t *testing.T, mode os.FileMode, files ...string) string {
		t.Helper()
		dir := filepath.Join(t.TempDir(), "state")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(dir, mode); err != nil { // whatever the umask
			t.Fatal(err)
		}
		return dir
	}
	refused := func(t *testing.T, dir, want string) {
		t.Helper()
		before := mode(t, dir)
		err := Make(dir, database)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(sandbox.HintOf(err), "chmod 700 "+dir) {
			t.Errorf("error %v, hint %q, want %q and how to mend it", err, sandbox.HintOf(err), want)
		}
		if after := mode(t, dir); after != before {
			t.Errorf("the mode of what was refused became %o", after)
		}
	}
	for name, dir := range map[string]string{
		"new":            filepath.Join(t.TempDir(), "a", "b"),
		"empty":          mk(t, 0o755),
		"used":           mk(t, 0o755, database, "other"),
		"group":          mk(t, 0o750, database),
		"closed already": mk(t, 0o700, "other"),
	} {
		t.Run(name, func(t *testing.T) {
			if err := Make(dir, database); err != nil {
				t.Fatal(err)
			}
			if got := mode(t, dir); got != 0o700 {
				t.Errorf("mode %o, want 700", got)
			}
		})
	}
	t.Run("full of other things", func(t *testing.T) {
		refused(t, mk(t, 0o755, "somebody's"), "files that are not Glovebox's")
	})
	t.Run("somebody else's", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("only root can give a directory away")
		}
		dir := mk(t, 0o755)
		if err := os.Chown(dir, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		refused(t, dir, "belongs to user 12345")
	})
}
