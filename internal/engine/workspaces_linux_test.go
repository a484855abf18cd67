package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/driver/fake"
	"github.com/glovebox-dev/glovebox/internal/engine/run"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/workspace"
)

// openWorkspaces returns an engine that keeps workspaces.
func openWorkspaces(t *testing.T, change func(*Options)) *Engine {
	t.Helper()
	return openWorkspacesIn(t, t.TempDir(), change)
}

// openWorkspacesIn returns one for a state directory that may be another's.
func openWorkspacesIn(t *testing.T, dir string, change func(*Options)) *Engine {
	t.Helper()
	set, err := workspace.Open(filepath.Join(dir, "workspaces"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := set.Close(); err != nil {
			t.Error(err)
		}
	})
	e := openFake(t, dir, func(o *Options, _ *fake.Options) {
		o.Workspaces = workspace.Local{Set: set}
		if change != nil {
			change(o)
		}
	})
	e.ServeFilesAt("https://box.example/")
	return e
}

func inSpace(id, command string) sandbox.RunRequest {
	return sandbox.RunRequest{SandboxID: id, Commands: []string{command}}
}

// TestEvictionKeepsTheWorkspace has a sandbox stopped for another, which finds its
// files.
func TestEvictionKeepsTheWorkspace(t *testing.T) {
	e := openWorkspaces(t, func(o *Options) {
		o.MaxSandboxes, o.QueueTime, o.EvictAfter = 1, 20*time.Second, 100*time.Millisecond
	})
	first := e.mustCreate(t, sandbox.CreateRequest{Workspace: "mine"})
	e.mustRun(t, inSpace(first.ID, "echo text > file"))
	second := e.mustCreate(t, sandbox.CreateRequest{Workspace: "mine"})
	if s, err := e.Get(t.Context(), alice, first.ID); err != nil || s.State != sandbox.Stopped || !strings.Contains(s.Cause, "full") {
		t.Errorf("the first: %+v, %v", s, err)
	}
	if _, out := e.mustRun(t, inSpace(second.ID, "cat file")); out.Stdout != "text\n" {
		t.Errorf("the second reads %q", out.Stdout)
	}
}

func TestWorkspaceOutlivesSandboxes(t *testing.T) {
	e := openWorkspaces(t, nil)
	a := e.mustCreate(t, sandbox.CreateRequest{Workspace: "mine"})
	if a.Workspace != "mine" {
		t.Errorf("the sandbox says its workspace is %q", a.Workspace)
	}
	// The address of the workspace's files is a right to read them, which no
	// program gets.
	_, out := e.mustRun(t, inSpace(a.ID, "echo text > file; env"))
	id, handle, err := e.WorkspaceOf(t.Context(), alice, "mine")
	if err != nil || strings.Contains(out.Stdout, "FILE_BASE_URL") || strings.Contains(out.Stdout, "box.example") {
		t.Errorf("the environment has the workspace's address: %s, %v", out.Stdout, err)
	}
	b := e.mustCreate(t, sandbox.CreateRequest{Workspace: "mine"})
	if _, out := e.mustRun(t, inSpace(b.ID, "cat file")); out.Stdout != "text\n" {
		t.Errorf("another sandbox with it reads %q", out.Stdout)
	}
	if err := e.DeleteWorkspace(t.Context(), alice, "mine"); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("delete while sandboxes have it: %v", err)
	}
	for _, s := range []sandbox.Sandbox{a, b} {
		if err := e.Stop(t.Context(), alice, s.ID); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{id, handle} {
		f, err := e.OpenFile(t.Context(), name, "file")
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(f); err != nil || string(text) != "text\n" {
			t.Errorf("after its sandboxes' end: %q, %v", text, err)
		}
		f.Close()
	}
	w, err := e.Workspace(t.Context(), alice, "mine")
	if err != nil || w.InUse || w.Usage.Files != 1 {
		t.Errorf("%+v, %v", w, err)
	}
	// To another principal it does not exist.
	if _, err := e.Workspace(t.Context(), mallory, "mine"); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("another's: %v", err)
	}
	if err := e.DeleteWorkspace(t.Context(), mallory, "mine"); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("delete another's: %v", err)
	}
	if list, err := e.Workspaces(t.Context(), mallory); err != nil || len(list) != 0 {
		t.Errorf("another's list: %v, %v", list, err)
	}
	var archive bytes.Buffer
	if err := e.ExportWorkspace(t.Context(), alice, "mine", &archive); err != nil {
		t.Fatal(err)
	}
	if err := e.ImportWorkspace(t.Context(), mallory, "copy", &archive); err != nil {
		t.Fatal(err)
	}
	if w, err := e.Workspace(t.Context(), mallory, "copy"); err != nil || w.Usage.Files != 1 {
		t.Errorf("imported: %+v, %v", w, err)
	}
	if err := e.DeleteWorkspace(t.Context(), alice, "mine"); err != nil {
		t.Error(err)
	}
	if _, err := e.OpenFile(t.Context(), id, "file"); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("after its removal: %v", err)
	}
	for _, name := range []string{strings.Repeat("x", 200), "a\nb", "\xff"} {
		if _, err := e.Create(t.Context(), alice, sandbox.CreateRequest{Workspace: name}); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("name %q: %v", name, err)
		}
	}
}

func TestWorkspaceUnsupported(t *testing.T) {
	e := openFake(t, t.TempDir(), nil)
	if _, err := e.Create(t.Context(), alice, sandbox.CreateRequest{Workspace: "w"}); !errors.Is(err, sandbox.Unsupported) {
		t.Errorf("%v, want kind unsupported", err)
	}
}

func TestWorkspaceChanges(t *testing.T) {
	e := openWorkspaces(t, nil)
	s := e.mustCreate(t, sandbox.CreateRequest{Workspace: "w"})
	r, _ := e.mustRun(t, inSpace(s.ID, "echo 1 > a; echo 1 > b; mkdir d; echo 1 > d/c"))
	const hash = "4355a46b19d348dc2f57c046f8ef63d4538ebb936000f3c9ee954a27460dd865"
	if diff := cmp.Diff([]sandbox.FileChange{
		{Path: "a", Size: 2, Change: "created", SHA256: hash}, {Path: "b", Size: 2, Change: "created", SHA256: hash}, {Path: "d/c", Size: 2, Change: "created", SHA256: hash},
	}, r.Changes.Files); diff != "" {
		t.Errorf("first run (-want +got):\n%s", diff)
	}
	// What comes by another way in between is not the next run's.
	if err := e.WriteFile(t.Context(), alice, s.ID, fakeDir(t, e, s)+"/uploaded", strings.NewReader("x"), false); err != nil {
		t.Fatal(err)
	}
	id, _, err := e.WorkspaceOf(t.Context(), alice, "w")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.PutFile(t.Context(), id, "put", strings.NewReader("x"), 1); err != nil {
		t.Fatal(err)
	}
	r, _ = e.mustRun(t, inSpace(s.ID, "echo more >> a; rm b; exit 3"))
	if diff := cmp.Diff(&sandbox.Changes{Modified: 1, Removed: 1, Files: []sandbox.FileChange{
		{Path: "a", Size: 7, Change: "modified", SHA256: "5dd6d6764ef05ff8946c8f3cf264d1e307c92892911910b1a6b29750c5c1067c"}, {Path: "b", Change: "removed"},
	}}, r.Changes); diff != "" {
		t.Errorf("second run (-want +got):\n%s", diff)
	}
	r, _ = e.mustRun(t, inSpace(s.ID, "cat a"))
	if diff := cmp.Diff(&sandbox.Changes{}, r.Changes); diff != "" {
		t.Errorf("a run that changes nothing (-want +got):\n%s", diff)
	}
	r, _ = e.mustRun(t, inSpace(s.ID, "for i in $(seq 150); do echo > f$i; done"))
	if c := r.Changes; c.Created != 150 || len(c.Files) != 100 || c.Omitted != 50 {
		t.Errorf("150 files: %d created, %d named, %d omitted", c.Created, len(c.Files), c.Omitted)
	}
	stored, err := e.store.Run(t.Context(), r.ID)
	if diff := cmp.Diff(r.Changes, stored.Changes); err != nil || diff != "" {
		t.Errorf("as stored: %v\n%s", err, diff)
	}
}

// TestChangesAfterRestart has a server take over runs of one that ended.
func TestChangesAfterRestart(t *testing.T) {
	created := sandbox.FileChange{Path: "new", Size: 2, Change: sandbox.FileCreated, SHA256: "4355a46b19d348dc2f57c046f8ef63d4538ebb936000f3c9ee954a27460dd865"}   // 1
	modified := sandbox.FileChange{Path: "old", Size: 8, Change: sandbox.FileModified, SHA256: "7f8b1dfc466b6249f06cbe55c9174df2578e7754da793fded244ef5cba2a38f1"} // changed
	for _, tc := range []struct {
		how, files string
		want       sandbox.Changes
	}{
		{"which kept what was there", "before", sandbox.Changes{Created: 1, Modified: 1, Removed: 1, Files: []sandbox.FileChange{
			created, modified, {Path: "gone", Change: sandbox.FileRemoved},
		}}},
		{"which was killed before it could", "", sandbox.Changes{Created: 1, Modified: 1, Files: []sandbox.FileChange{
			created, modified,
		}}},
	} {
		t.Run(tc.how, func(t *testing.T) {
			dir := t.TempDir()
			old := openWorkspacesIn(t, dir, detached)
			s := old.mustCreate(t, sandbox.CreateRequest{Workspace: "w"})
			old.mustRun(t, inSpace(s.ID, "echo a > old; echo b > gone; echo c > same"))
			time.Sleep(2 * workspace.Tick) // so that this is clearly before
			r := old.mustStart(t, inSpace(s.ID, "echo 1 > new; rm gone; echo begun; while [ ! -e go ]; do sleep 0.05; done; rm go; echo changed > old"))
			if err := old.Follow(t.Context(), alice, r.ID, func(sandbox.StreamName, []byte) error { return io.EOF }); err != io.EOF {
				t.Fatal(err)
			}
			id, _, _ := old.WorkspaceOf(t.Context(), alice, "w")
			if err := old.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			kept, _ := filepath.Glob(filepath.Join(dir, "*", s.ID, r.ID+".before"))
			if len(kept) != 1 {
				t.Fatalf("kept: %v", kept)
			}
			if tc.files == "" {
				if err := os.Remove(kept[0]); err != nil {
					t.Fatal(err)
				}
			}
			e := openWorkspacesIn(t, dir, func(o *Options) {
				o.Detached = true
				o.WorkspaceQuota = sandbox.WorkspaceUsage{Bytes: 4 << 20}
			})
			// Asking for it has it taken over. What changes before is told
			// otherwise.
			ended := make(chan sandbox.Run, 1)
			go func() {
				run, err := e.Wait(context.Background(), alice, r.ID)
				if err != nil {
					t.Errorf("wait: %v", err)
				}
				ended <- run
			}()
			for taken, end := false, time.Now().Add(20*time.Second); !taken; time.Sleep(5 * time.Millisecond) {
				taken = e.runs.Find(r.ID) != nil
				if time.Now().After(end) {
					t.Fatal("the run is not taken over")
				}
			}
			if _, err := e.PutFile(t.Context(), id, "go", strings.NewReader(""), 0); err != nil {
				t.Fatal(err)
			}
			r = <-ended
			if r.Changes == nil {
				t.Fatalf("%+v", r)
			}
			if diff := cmp.Diff(tc.want, *r.Changes); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "*", s.ID, "*.before")); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			if err := e.Stop(t.Context(), alice, s.ID); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestQuotaAfterRestart: a run that another server began has its quota, too.
func TestQuotaAfterRestart(t *testing.T) {
	dir := t.TempDir()
	old := openWorkspacesIn(t, dir, detached)
	s := old.mustCreate(t, sandbox.CreateRequest{Workspace: "w"})
	r := old.mustStart(t, inSpace(s.ID, "echo begun; while [ ! -e go ]; do sleep 0.05; done; while :; do head -c 100000 /dev/zero >> big; done"))
	if err := old.Follow(t.Context(), alice, r.ID, func(sandbox.StreamName, []byte) error { return io.EOF }); err != io.EOF {
		t.Fatal(err)
	}
	id, _, _ := old.WorkspaceOf(t.Context(), alice, "w")
	time.Sleep(run.KeepBaselineAfter) // and without any farewell
	old.crash(t)
	e := openWorkspacesIn(t, dir, func(o *Options) {
		o.Detached = true
		o.WorkspaceQuota = sandbox.WorkspaceUsage{Bytes: 4 << 20}
	})
	if _, err := e.PutFile(t.Context(), id, "go", strings.NewReader(""), 0); err != nil {
		t.Fatal(err)
	}
	if r = e.mustWait(t, r.ID); r.Verdict.Code != sandbox.DiskFull || r.Changes == nil || r.Changes.Created == 0 {
		t.Errorf("%+v, %+v; want disk_full", r.Verdict, r.Changes)
	}
	if err := e.Stop(t.Context(), alice, s.ID); err != nil {
		t.Error(err)
	}
}

// fakeDir returns where a sandbox of the fake driver has its workspace.
func fakeDir(t *testing.T, e *Engine, s sandbox.Sandbox) string {
	t.Helper()
	return e.live(s.ID).mount.Main().Path()
}

func TestWorkspaceQuota(t *testing.T) {
	const quota = 4 << 20
	e := openWorkspaces(t, func(o *Options) {
		o.WorkspaceQuota = sandbox.WorkspaceUsage{Bytes: quota, Files: 50}
		// Far above how much the endless one may get ahead of who watches.
		o.PrincipalQuota = sandbox.WorkspaceUsage{Bytes: 1 << 30, Files: 1000}
	})
	s := e.mustCreate(t, sandbox.CreateRequest{Workspace: "w"})
	full := func(r sandbox.Run, what string) {
		t.Helper()
		if r.Verdict.Code != sandbox.DiskFull || r.Verdict.Cause == "" || r.Verdict.NextStep == "" {
			t.Errorf("%s: %+v, want disk_full", what, r.Verdict)
		}
	}
	// One that is faster than who watches, and one that would go on for ever.
	r, _ := e.mustRun(t, inSpace(s.ID, "head -c 6000000 /dev/zero > big"))
	full(r, "a quick one")
	// Cleaning up is possible while there is too much.
	r, _ = e.mustRun(t, inSpace(s.ID, "ls > /dev/null"))
	if r.Verdict.Code != sandbox.OK {
		t.Errorf("a run that adds nothing: %+v", r.Verdict)
	}
	id, _, _ := e.WorkspaceOf(t.Context(), alice, "w")
	if _, err := e.PutFile(t.Context(), id, "more", strings.NewReader("x"), 1); !errors.Is(err, sandbox.Exhausted) {
		t.Errorf("an upload while it is full: %v", err)
	}
	r, _ = e.mustRun(t, inSpace(s.ID, "rm big"))
	if r.Verdict.Code != sandbox.OK || r.Changes.Removed != 1 {
		t.Errorf("cleaning up: %+v, %+v", r.Verdict, r.Changes)
	}
	began := time.Now()
	r, _ = e.mustRun(t, inSpace(s.ID, "while :; do head -c 100000 /dev/zero >> big; done"))
	full(r, "an endless one")
	w, err := e.Workspace(t.Context(), alice, "w")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("ended after %v, %s beyond the quota", time.Since(began), sandbox.FormatBytes(w.Usage.Bytes-quota))
	if w.Usage.Bytes > quota+256<<20 {
		t.Errorf("%d bytes got through", w.Usage.Bytes)
	}
	// Other workspaces go on.
	o := e.mustCreate(t, sandbox.CreateRequest{Workspace: "other"})
	if r, _ := e.mustRun(t, inSpace(o.ID, "head -c 1000000 /dev/zero > f")); r.Verdict.Code != sandbox.OK {
		t.Errorf("another workspace: %+v", r.Verdict)
	}
	r, _ = e.mustRun(t, inSpace(o.ID, "for i in $(seq 60); do : > f$i; done"))
	full(r, "too many files")
	// Nesting is no way to hide.
	d := e.mustCreate(t, sandbox.CreateRequest{Workspace: "deep"})
	r, _ = e.mustRun(t, inSpace(d.ID, "for i in $(seq 300); do mkdir d && cd d; done"))
	full(r, "too deep")
	// Uploads have the same bounds, whatever they announce.
	e.mustRun(t, inSpace(s.ID, "rm -f big"))
	for _, size := range []int64{-1, 5 << 20} {
		_, err := e.PutFile(t.Context(), id, "up", io.LimitReader(zeros{}, 5<<20), size)
		if !errors.Is(err, sandbox.Exhausted) {
			t.Errorf("an upload of too much, announced as %d: %v", size, err)
		}
	}
	if _, err := e.PutFile(t.Context(), id, "up", io.LimitReader(zeros{}, 3<<20), -1); err != nil {
		t.Errorf("an upload of what fits: %v", err)
	}
	// The driver of tests has the files of this machine, so the guest makes the directory.
	if _, err := os.Lstat(sandbox.WorkDir); errors.Is(err, fs.ErrNotExist) {
		t.Cleanup(func() { _ = os.Remove(sandbox.WorkDir) })
	}
	if err := e.WriteFile(t.Context(), alice, s.ID, "/data/x", io.LimitReader(zeros{}, 2<<20), false); !errors.Is(err, sandbox.Exhausted) {
		t.Errorf("a write by the sandbox's API of too much: %v", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestPrincipalQuota(t *testing.T) {
	e := openWorkspaces(t, func(o *Options) { o.PrincipalQuota = sandbox.WorkspaceUsage{Bytes: 4 << 20} })
	for i, want := range []sandbox.VerdictCode{sandbox.OK, sandbox.DiskFull} {
		s := e.mustCreate(t, sandbox.CreateRequest{Workspace: fmt.Sprint("w", i)})
		if r, _ := e.mustRun(t, inSpace(s.ID, "head -c 3000000 /dev/zero > f")); r.Verdict.Code != want {
			t.Errorf("workspace %d: %+v, want %s", i, r.Verdict, want)
		}
	}
	s, err := e.Create(t.Context(), mallory, sandbox.CreateRequest{Workspace: "w"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := e.Start(t.Context(), mallory, inSpace(s.ID, "head -c 3000000 /dev/zero > f"))
	if err == nil {
		r, err = e.Wait(t.Context(), mallory, r.ID)
	}
	if err != nil || r.Verdict.Code != sandbox.OK {
		t.Errorf("another principal's: %+v, %v", r.Verdict, err)
	}
}

func TestWorkspaceRetention(t *testing.T) {
	var later atomic.Int64
	e := openWorkspaces(t, func(o *Options) {
		o.WorkspaceTTL = time.Hour
		o.Defaults = sandbox.Limits{Idle: 1000 * time.Hour, Lifetime: 1000 * time.Hour}
		o.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	})
	used := e.mustCreate(t, sandbox.CreateRequest{Workspace: "used"})
	left := e.mustCreate(t, sandbox.CreateRequest{Workspace: "left"})
	e.mustRun(t, inSpace(left.ID, "mkdir -p a/b; echo x > a/b/c"))
	if err := e.Stop(t.Context(), alice, left.ID); err != nil {
		t.Fatal(err)
	}
	names := func() (names []string) {
		list, err := e.Workspaces(t.Context(), alice)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range list {
			names = append(names, w.Name)
		}
		return names
	}
	for _, step := range []struct {
		after time.Duration
		want  []string
	}{{59 * time.Minute, []string{"left", "used"}}, {2 * time.Minute, []string{"used"}}, {50 * time.Hour, []string{"used"}}} {
		later.Add(int64(step.after))
		if err := e.mounts.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := names(); !slices.Equal(got, step.want) {
			t.Errorf("after %v more: %v, want %v", step.after, got, step.want)
		}
	}
	e.mustRun(t, inSpace(used.ID, "echo x > f"))
	entries, err := os.ReadDir(filepath.Join(e.opts.StateDir, "workspaces"))
	if err != nil || len(entries) != 3 { // the secret, tmp, and the one that is used
		t.Errorf("left on disk: %v, %v", entries, err)
	}
}
