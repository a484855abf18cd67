package clientconfig

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestLineOf(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"servers:\n  glovebox: /opt/glovebox mcp - Connected\n", "glovebox: /opt/glovebox mcp - Connected"},
		{"\x1b[1m│ \x1b[32mglovebox\x1b[0m │ enabled │\n", "│ glovebox │ enabled │"},
		{"other: /opt/glovebox mcp\nglovebox2: x\n", ""},
		{"glovebox: \x1b]52;c;aGk=\x07x\u202e\n", "glovebox: ]52;c;aGk=x"},
		{"", ""},
	} {
		if got := lineOf(c.text, "glovebox"); got != c.want {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
}

// TestAskWithoutCommand checks the answers for clients whose own list command is not
// there.
func TestAskWithoutCommand(t *testing.T) {
	env := environment("linux", t.TempDir())
	for _, c := range Clients() {
		if c.ByHand() {
			if _, err := c.Ask(t.Context(), env, User, "glovebox"); !errors.Is(err, sandbox.Unsupported) {
				t.Errorf("%s: %v", c.Name, err)
			}
		}
	}
	c, err := Find("cursor")
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Ask(t.Context(), env, User, "glovebox")
	if !errors.Is(err, sandbox.NotFound) || sandbox.HintOf(err) != "run glovebox install cursor" {
		t.Errorf("%v; %s", err, sandbox.HintOf(err))
	}
	change, err := c.Plan(env, User, local)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := change.Apply(time.Now()); err != nil {
		t.Fatal(err)
	}
	got, err := c.Ask(t.Context(), env, User, "glovebox")
	if want := "in " + change.Path + "; the client was not asked"; got != want || err != nil {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}

// TestAskElsewhere: a client is asked in the home directory, because it would start
// the servers of a project.
func TestAskElsewhere(t *testing.T) {
	bin, home, project := t.TempDir(), t.TempDir(), t.TempDir()
	script := "#!/bin/sh\necho \"glovebox: $PWD\"\n"
	if err := os.WriteFile(filepath.Join(bin, "claude"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	env := environment("linux", home)
	env.Project = project
	env.InPath = func(string) bool { return true }
	c, err := Find("claude-code")
	if err != nil {
		t.Fatal(err)
	}
	for scope, want := range map[Scope]string{User: home, Project: project} {
		change, err := c.Plan(env, scope, local)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := change.Apply(time.Now()); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Ask(t.Context(), env, scope, "glovebox"); got != "glovebox: "+want || err != nil {
			t.Errorf("%s: %q, %v, want it to run in %s", scope, got, err, want)
		}
	}
}

// TestRemoveBackups checks that only the backups of the client's file are removed.
func TestRemoveBackups(t *testing.T) {
	env := environment("linux", t.TempDir())
	c, err := Find("cursor")
	if err != nil {
		t.Fatal(err)
	}
	path, err := c.Path(env, User)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	backup := path + ".20260102-030405.bak"
	for _, name := range []string{path, path + ".bak", path + ".mine", backup} {
		if err := os.WriteFile(name, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := c.Backups(env, User, "glovebox"); err != nil || !slices.Equal(got, []string{backup}) {
		t.Errorf("backups: %v, %v", got, err)
	}
	var removed []string
	if err := c.RemoveBackups(env, User, "glovebox", func(path string) { removed = append(removed, filepath.Base(path)) }); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{filepath.Base(backup)}, removed); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for _, name := range []string{path, path + ".bak", path + ".mine"} {
		if _, err := os.Stat(name); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(backup); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the backup: %v", err)
	}
}
