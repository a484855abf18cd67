package drivertest

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// testChanges checks that a guest of ours knows which files a run changed, and their
// differences, in the working directory and in another directory in which a run starts.
// The guest's own tests check the details.
func testChanges(t *testing.T, s *suite) {
	b := s.open(t).box(t)
	dir := b.Dir(t)
	t.Run("Work", func(t *testing.T) { changeFiles(t, s, b, dir+"/changes") })
	if dir == sandbox.WorkDir { // others have files of the machine around it
		t.Run("Beside", func(t *testing.T) { changeFiles(t, s, b, "/tmp/changes") })
	}
}

func changeFiles(t *testing.T, s *suite, b *Box, dir string) {
	b.MustRun(t, Cmd{Argv: []string{"mkdir", dir}})
	b.write(t, dir+"/old", "one\ntwo\n")
	b.write(t, dir+"/gone", "x\n")
	if !s.h.NoPreviews { // as copied files
		if err := b.Client.SetBase(step(t), []sandbox.CopiedFile{{Path: dir + "/old"}, {Path: dir + "/gone"}}); err != nil {
			t.Fatal(err)
		}
	}
	first, second := sandbox.NewRunID(), sandbox.NewRunID()
	b.MustRun(t, Cmd{Shell: "echo three >> old; rm gone; printf '\\000' > new; mkdir sub; ln -s ../old sub/link", Dir: dir, Tag: first})
	got, err := b.Client.Changes(step(t), guestapi.ChangesRequest{Run: first})
	if s.h.NoPreviews {
		wantKind(t, "Changes by an agent that is not ours", err, sandbox.Unsupported)
		_, err = b.Client.Diff(step(t), sandbox.DiffRequest{Path: dir, MaxText: sandbox.MaxDiffText})
		wantKind(t, "Diff by an agent that is not ours", err, sandbox.Unsupported)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range got.Files { // names are relative only below the working directory
		_, got.Files[i].Path, _ = strings.Cut(got.Files[i].Path, "changes/")
	}
	want := sandbox.Changes{Created: 2, Modified: 1, Removed: 1, Files: []sandbox.FileChange{
		{Path: "new", Size: 1, Change: sandbox.FileCreated, SHA256: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"},
		{Path: "sub/link", Size: 6, Change: sandbox.FileCreated},
		{Path: "old", Size: 14, Change: sandbox.FileModified, SHA256: "b6285c57e8797db5d4c51c80d6f11938afda9b11c6a003549709189e9b4b92a2"},
		{Path: "gone", Change: sandbox.FileRemoved},
	}}
	if !got.Known || !reflect.DeepEqual(got.Changes, want) {
		t.Errorf("known: %v; changes:\n%+v, want\n%+v", got.Known, got.Changes, want)
	}

	b.MustRun(t, Cmd{Shell: "echo four >> old", Dir: dir, Tag: second})
	d, err := b.Client.Diff(step(t), sandbox.DiffRequest{Path: dir, Since: second, MaxText: sandbox.MaxDiffText})
	if err != nil {
		t.Fatal(err)
	}
	if d.Modified != 1 || d.Created+d.Removed != 0 || !strings.Contains(d.Text, "\n three\n+four\n") {
		t.Errorf("since the second run: %+v\n%s", d.Changes, d.Text)
	}
	d, err = b.Client.Diff(step(t), sandbox.DiffRequest{Path: dir, Patch: true, MaxText: sandbox.MaxDiffText})
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"--- a/old\n+++ b/old\n", "+three\n+four\n", "deleted file mode 100644", "GIT binary patch", "new file mode 120000"} {
		if !strings.Contains(d.Text, part) {
			t.Errorf("the patch lacks %q:\n%s", part, d.Text)
		}
	}
	if _, err := b.Client.Diff(step(t), sandbox.DiffRequest{Path: "/etc", MaxText: 1}); !errors.Is(err, sandbox.Invalid) {
		t.Errorf("differences of a directory without runs: %v", err)
	}
}
