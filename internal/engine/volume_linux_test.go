package engine

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestVolume uses the files of a workspace from outside, within its quota, while a
// sandbox has it.
func TestVolume(t *testing.T) {
	e := openWorkspaces(t, func(o *Options) { o.WorkspaceQuota = sandbox.WorkspaceUsage{Bytes: 1 << 20, Files: 4} })
	if _, err := e.MakeWorkspace(t.Context(), alice, "mine"); err != nil {
		t.Fatal(err)
	}
	_, handle, err := e.WorkspaceOf(t.Context(), alice, "mine")
	if err != nil {
		t.Fatal(err)
	}
	v, err := e.Volume(t.Context(), handle)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Release()
	if v.Owner() != alice || v.Name() != "mine" {
		t.Errorf("%s's %s", v.Owner(), v.Name())
	}
	if err := v.MakeDir(t.Context(), "dir", false); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Put(t.Context(), "dir/a", strings.NewReader("text"), 4); err != nil {
		t.Fatal(err)
	}
	mode := uint32(0o640)
	if err := v.SetAttributes(t.Context(), "dir/a", sandbox.VolumeAttributes{Mode: &mode}); err != nil {
		t.Fatal(err)
	}
	s := e.mustCreate(t, sandbox.CreateRequest{Workspace: "mine"})
	if _, out := e.mustRun(t, inSpace(s.ID, "stat -c %a dir/a; cat dir/a; echo b > b")); out.Stdout != "640\ntext" {
		t.Errorf("the sandbox sees %q", out.Stdout)
	}
	f, info, err := v.Content(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(f); err != nil || string(text) != "b\n" || info.Size() != 2 {
		t.Errorf("%q, %v", text, err)
	}
	f.Close()
	list, err := v.List(t.Context(), ".", 2, 10)
	var got []string
	for _, f := range list {
		got = append(got, f.Path)
	}
	if diff := cmp.Diff([]string{"/b", "/dir", "/dir/a"}, got); diff != "" || err != nil {
		t.Errorf("%v: %s", err, diff)
	}
	if err := v.MakeDir(t.Context(), "c", false); err != nil {
		t.Error(err)
	}
	if err := v.MakeDir(t.Context(), "d", false); !errors.Is(err, sandbox.Exhausted) {
		t.Errorf("a directory beyond the quota: %v", err)
	}
	if _, err := v.Put(t.Context(), "large", strings.NewReader(strings.Repeat("x", 2<<20)), -1); !errors.Is(err, sandbox.Exhausted) {
		t.Errorf("a file beyond the quota: %v", err)
	}
	if err := v.Delete(t.Context(), "dir"); err != nil {
		t.Error(err)
	}
	if err := v.MakeDir(t.Context(), "d", false); err != nil {
		t.Errorf("after files were removed: %v", err)
	}
	if _, err := e.Volume(t.Context(), "0123"); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("none: %v", err)
	}
}
