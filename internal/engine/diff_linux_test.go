package engine

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestRunChanges has runs change files of a sandbox without a workspace.
func TestRunChanges(t *testing.T) {
	e := openFake(t, t.TempDir(), nil)
	s := e.mustCreate(t, sandbox.CreateRequest{})
	first, out := e.mustRun(t, inSpace(s.ID, "pwd; mkdir d; printf 'new\\n' >d/new; echo x >gone"))
	const hash = "7aa7a5359173d05b63cfd682e3c38487f3cb4f7f1d60659fe59fab1505977d4c"
	want := sandbox.FileChange{Path: "d/new", Size: 4, Change: sandbox.FileCreated, SHA256: hash}
	dir := strings.TrimSpace(out.Stdout)
	if c := first.Changes; c == nil || c.Created != 2 || len(c.Files) != 2 || c.Files[0] != want {
		t.Fatalf("the first run changed %+v", c)
	}
	if err := e.WriteFile(t.Context(), alice, s.ID, dir+"/written", strings.NewReader("w\n"), false); err != nil {
		t.Fatal(err)
	}
	second, _ := e.mustRun(t, inSpace(s.ID, "echo more >>d/new; rm gone"))
	if c := second.Changes; c == nil || c.Created != 0 || c.Modified != 1 || c.Removed != 1 {
		t.Errorf("the second run changed %+v", c)
	}
	d, err := e.Diff(t.Context(), alice, s.ID, sandbox.DiffRequest{Since: second.ID})
	if err != nil || !strings.Contains(d.Text, "@@ -1 +1,2 @@\n new\n+more\n") || d.Modified != 1 || d.Removed != 1 || d.Created != 0 {
		t.Errorf("since the second run: %+v, %v", d, err)
	}
	var names []string
	if d, err = e.Diff(t.Context(), alice, s.ID, sandbox.DiffRequest{}); err == nil {
		for _, f := range d.Files {
			names = append(names, f.Path)
		}
	}
	if diff := cmp.Diff([]string{"d/new", "written"}, names); diff != "" || err != nil {
		t.Errorf("in all: %v (-want +got):\n%s", err, diff)
	}
	// A copy from elsewhere is the base of later changes.
	if err := e.SetBase(t.Context(), alice, s.ID, []sandbox.CopiedFile{{Path: "written"}, {Path: "d/new"}}); err != nil {
		t.Fatal(err)
	}
	if d, err = e.Diff(t.Context(), alice, s.ID, sandbox.DiffRequest{}); err != nil || len(d.Files) != 0 || d.Text != "" {
		t.Errorf("after a copy: %+v, %v", d, err)
	}
	if _, err := e.Diff(t.Context(), alice, s.ID, sandbox.DiffRequest{Since: "run_aaaaaaaaaaaaaaaaaaaaaaaaaa"}); !errors.Is(err, sandbox.Invalid) || sandbox.HintOf(err) == "" {
		t.Errorf("an unknown run: %v", err)
	}
	if err := e.SetBase(t.Context(), "bob", s.ID, nil); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("another's sandbox: %v", err)
	}
}

// TestRunHashes has a run change files of a workspace.
func TestRunHashes(t *testing.T) {
	e := openWorkspaces(t, nil)
	s := e.mustCreate(t, sandbox.CreateRequest{Workspace: "mine"})
	r, _ := e.mustRun(t, inSpace(s.ID, "printf 'new\\n' >new"))
	if c := r.Changes; c == nil || len(c.Files) != 1 || c.Files[0].SHA256 != "7aa7a5359173d05b63cfd682e3c38487f3cb4f7f1d60659fe59fab1505977d4c" {
		t.Errorf("the run changed %+v", c)
	}
}
