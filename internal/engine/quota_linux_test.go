package engine

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/safepath"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/workspace"
)

// The quotas against programs and files that are real.

// waitFull waits until a sandbox stops because of its workspace, and checks what
// that holds. meanwhile is done again and again.
func (e *Engine) waitFull(t *testing.T, id string, meanwhile func()) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		s := e.mustGet(t, id)
		if s.State == sandbox.Stopped {
			if !strings.Contains(s.Cause, "may hold") {
				t.Errorf("it stopped for another reason: %s", s.Cause)
			}
			break
		}
		if time.Now().After(end) {
			t.Fatal("it writes on and on, and is not stopped")
		}
		meanwhile()
	}
	w, err := e.Workspace(t.Context(), alice, e.mustGet(t, id).Workspace)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the workspace holds %s", sandbox.FormatBytes(w.Usage.Bytes))
	if w.Usage.Bytes > 32*mib+256*mib {
		t.Errorf("the workspace holds %s", sandbox.FormatBytes(w.Usage.Bytes))
	}
}

// uploadForm uploads a file whose name only the form in the body has: by the path
// of a request this process would take a directory of the fake for one outside of
// the workspace.
func uploadForm(t *testing.T, name string, size int64) *http.Request {
	t.Helper()
	var head bytes.Buffer
	form := multipart.NewWriter(&head)
	if _, err := form.CreateFormFile("file", name); err != nil {
		t.Fatal(err)
	}
	req := upload(t.Context(), "", size)
	req.Body = io.NopCloser(io.MultiReader(&head, req.Body, strings.NewReader("\r\n--"+form.Boundary()+"--\r\n")))
	req.Header.Set("Content-Type", form.FormDataContentType())
	return req
}

func TestWorkspaceQuotaOfOthersThanRuns(t *testing.T) {
	e := openWorkspaces(t, func(o *Options) { o.WorkspaceQuota = sandbox.WorkspaceUsage{Bytes: 32 * mib} })
	const endless = "while :; do head -c 1000000 /dev/zero >> endless; done"
	fresh := func(t *testing.T) sandbox.Sandbox {
		t.Helper()
		s := e.mustCreate(t, sandbox.CreateRequest{Workspace: t.Name()})
		e.mustRun(t, inSpace(s.ID, "touch small"))
		return s
	}
	t.Run("Upload", func(t *testing.T) {
		s := fresh(t)
		_, err := e.Forward(alice, s.ID, sandbox.ProgramDefaults{Dir: "~"}, uploadForm(t, fakeDir(t, e, s)+"/big", 200*mib))
		if !errors.Is(err, sandbox.Exhausted) || sandbox.HintOf(err) == "" {
			t.Errorf("%v, want exhausted with a hint", err)
		}
		if w, err := e.Workspace(t.Context(), alice, s.Workspace); err != nil || w.Usage.Bytes > 33*mib {
			t.Errorf("it holds %s, %v", sandbox.FormatBytes(w.Usage.Bytes), err)
		}
		if err := e.Stop(t.Context(), alice, s.ID); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("UploadByAnotherName", func(t *testing.T) {
		s := fresh(t)
		// As by a link in the sandbox, of which this side knows nothing.
		name := fakeDir(t, e, s) + "/big"
		go func() {
			resp, err := e.Forward(alice, s.ID, sandbox.ProgramDefaults{Dir: "~"}, upload(context.Background(), name, 2<<40))
			if err == nil {
				resp.Body.Close()
			}
		}()
		e.waitFull(t, s.ID, func() {})
	})
	t.Run("FileWithoutAName", func(t *testing.T) {
		s := fresh(t)
		// The loop ends by itself far beyond the quota, should nothing end it.
		r, _ := e.mustRun(t, inSpace(s.ID, "exec 3> x; rm x; i=0; while [ $i -lt 400 ]; do head -c 1000000 /dev/zero >&3; i=$((i+1)); done"))
		if r.Verdict.Code != sandbox.DiskFull {
			t.Errorf("a run that writes 400 MB to a file that it removed: %+v", r.Verdict)
		}
		if e.mustGet(t, s.ID).State == sandbox.Stopped {
			return // it was that fast
		}
		// With the run, its file is gone.
		if w, err := e.Workspace(t.Context(), alice, s.Workspace); err != nil || w.Usage.Bytes > 1*mib {
			t.Errorf("after the run the workspace holds %s, %v", sandbox.FormatBytes(w.Usage.Bytes), err)
		}
		if r, _ := e.mustRun(t, inSpace(s.ID, "echo text > small")); r.Verdict.Code != sandbox.OK {
			t.Errorf("the next run: %+v", r.Verdict)
		}
		if err := e.Stop(t.Context(), alice, s.ID); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("Process", func(t *testing.T) {
		s := fresh(t)
		var start guestapi.StartRequest
		start.Process.Cmd, start.Process.Args, start.Process.Cwd = "/bin/sh", []string{"-c", endless}, fakeDir(t, e, s)
		body, err := json.Marshal(start)
		if err != nil {
			t.Fatal(err)
		}
		req := newForward(context.Background(), guestapi.ProcStart, string(guestapi.AppendEnvelope(nil, 0, body)))
		req.Header.Set("Content-Type", guestapi.ContentTypeStream)
		resp, err := e.Forward(alice, s.ID, sandbox.ProgramDefaults{Dir: "~"}, req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		e.waitFull(t, s.ID, func() {})
	})
	t.Run("Background", func(t *testing.T) {
		s := fresh(t)
		dir := fakeDir(t, e, s)
		r, _ := e.mustRun(t, inSpace(s.ID, "( "+endless+" ) > /dev/null 2>&1 & sleep 0.01"))
		if r.Verdict.Code != sandbox.OK && r.Verdict.Code != sandbox.DiskFull {
			t.Errorf("%+v", r.Verdict)
		}
		e.waitFull(t, s.ID, func() {
			if r, _, err := e.ReadFile(t.Context(), alice, s.ID, dir+"/small", 0, -1); err == nil {
				r.Close()
			}
		})
	})
}

// archiveOf returns a tar archive of empty files with these names, and no entries
// for their directories.
func archiveOf(t *testing.T, names ...string) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range names {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// filesNamed returns n names, all with that prefix.
func filesNamed(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint(prefix, i)
	}
	return names
}

// TestQuotaOfImportedFiles imports archives of empty files: only their number
// counts.
func TestQuotaOfImportedFiles(t *testing.T) {
	load := func(e *Engine, name string, files ...string) error {
		return e.ImportWorkspace(t.Context(), alice, name, archiveOf(t, files...))
	}
	holds := func(t *testing.T, e *Engine, name string, want int64) {
		t.Helper()
		list, err := e.Workspaces(t.Context(), alice)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range list {
			if w.Name == name && w.Usage.Files != want {
				t.Errorf("workspace %s was recorded with %d files, want %d", name, w.Usage.Files, want)
			}
		}
		if w, err := e.Workspace(t.Context(), alice, name); err != nil || w.Usage.Files != want {
			t.Errorf("workspace %s holds %d files, %v; want %d", name, w.Usage.Files, err, want)
		}
	}
	t.Run("Directories", func(t *testing.T) {
		e := openWorkspaces(t, func(o *Options) { o.WorkspaceQuota = sandbox.WorkspaceUsage{Files: 10} })
		if err := load(e, "w", strings.Repeat("a/", 60)+"f"); !errors.Is(err, sandbox.Exhausted) {
			t.Errorf("one file in 60 directories: %v", err)
		}
	})
	t.Run("FilesAreThere", func(t *testing.T) {
		e := openWorkspaces(t, func(o *Options) { o.WorkspaceQuota = sandbox.WorkspaceUsage{Files: 10} })
		if err := load(e, "w", filesNamed("a", 6)...); err != nil {
			t.Fatal(err)
		}
		if err := load(e, "w", filesNamed("b", 5)...); !errors.Is(err, sandbox.Exhausted) {
			t.Errorf("5 more files beside 6, where 10 may be: %v", err)
		}
		holds(t, e, "w", 6)
		if err := load(e, "w", filesNamed("c/", 3)...); err != nil {
			t.Errorf("a directory and 3 files beside 6, where 10 may be: %v", err)
		}
		holds(t, e, "w", 10)
		if err := load(e, "w", "d"); !errors.Is(err, sandbox.Exhausted) {
			t.Errorf("an import into a full workspace: %v", err)
		}
		holds(t, e, "w", 10)
	})
	t.Run("Principal", func(t *testing.T) {
		e := openWorkspaces(t, func(o *Options) {
			o.WorkspaceQuota, o.PrincipalQuota = sandbox.WorkspaceUsage{Files: 10}, sandbox.WorkspaceUsage{Files: 15}
		})
		if err := load(e, "v", filesNamed("a", 10)...); err != nil {
			t.Fatal(err)
		}
		if err := load(e, "w", filesNamed("a", 6)...); !errors.Is(err, sandbox.Exhausted) {
			t.Errorf("6 files beside 10 in another workspace, where 15 may be: %v", err)
		}
		if err := load(e, "w", filesNamed("a", 5)...); err != nil {
			t.Errorf("5 files beside 10 in another workspace, where 15 may be: %v", err)
		}
		if err := load(e, "w", "b"); !errors.Is(err, sandbox.Exhausted) || !strings.Contains(err.Error(), "principal together") {
			t.Errorf("one more: %v", err)
		}
		id, _, err := e.WorkspaceOf(t.Context(), alice, "w")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.PutFile(t.Context(), id, "c", strings.NewReader("x"), 1); !errors.Is(err, sandbox.Exhausted) {
			t.Errorf("an upload: %v", err)
		}
		holds(t, e, "w", 5)
	})
	t.Run("UncountedAfterwards", func(t *testing.T) {
		var spaces *uncountable
		e := openWorkspaces(t, func(o *Options) {
			spaces = &uncountable{Keeper: o.Workspaces}
			o.Workspaces, o.WorkspaceQuota = spaces, sandbox.WorkspaceUsage{Files: 1000}
		})
		if err := load(e, "w", "a"); err != nil {
			t.Fatal(err)
		}
		// The workspace stays open, as while a sandbox has it: its last count is
		// known.
		if s := e.mustCreate(t, sandbox.CreateRequest{Workspace: "w"}); s.Workspace != "w" {
			t.Fatal(s)
		}
		if _, err := e.Workspace(t.Context(), alice, "w"); err != nil {
			t.Fatal(err)
		}
		spaces.after.Store(true)
		if err := load(e, "w", "b"); !errors.Is(err, sandbox.Exhausted) {
			t.Errorf("an import that cannot be counted: %v", err)
		}
		list, err := e.Workspaces(t.Context(), alice)
		if err != nil || len(list) != 1 || list[0].Usage.Files <= workspace.MaxFiles {
			t.Errorf("the record is %+v, %v; want more than a workspace may hold", list, err)
		}
		if err := load(e, "w", "c"); !errors.Is(err, sandbox.Exhausted) {
			t.Errorf("the next import: %v", err)
		}
		if n := spaces.imports.Load(); n != 2 {
			t.Errorf("%d imports were let in, want 2", n)
		}
		id, _, err := e.WorkspaceOf(t.Context(), alice, "w")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.PutFile(t.Context(), id, "d", strings.NewReader("x"), 1); !errors.Is(err, sandbox.Exhausted) {
			t.Errorf("an upload: %v", err)
		}
		if _, err := e.Start(t.Context(), alice, sandbox.RunRequest{New: sandbox.CreateRequest{Workspace: "w"}, Commands: []string{"true"}}); !errors.Is(err, sandbox.Exhausted) {
			t.Errorf("a run: %v", err)
		}
		// Whoever cleans up can go on.
		spaces.full.Store(false)
		spaces.after.Store(false)
		if _, err := e.Workspace(t.Context(), alice, "w"); err != nil {
			t.Error(err)
		}
		if err := load(e, "w", "e"); err != nil {
			t.Errorf("an import when it can be counted again: %v", err)
		}
	})
}

// uncountable keeps workspaces that cannot be counted once full is set. With after,
// the next import sets it.
type uncountable struct {
	workspace.Keeper
	after, full atomic.Bool
	imports     atomic.Int32
}

func (k *uncountable) Open(id workspace.ID) (workspace.Opened, error) {
	w, err := k.Keeper.Open(id)
	return uncountableSpace{w, k}, err
}

type uncountableSpace struct {
	workspace.Opened
	k *uncountable
}

func (s uncountableSpace) Import(ctx context.Context, in io.Reader, bytes, files int64) (safepath.Counts, error) {
	s.k.imports.Add(1)
	n, err := s.Opened.Import(ctx, in, bytes, files)
	s.k.full.Store(s.k.after.Load())
	return n, err
}

func (s uncountableSpace) Snapshot(ctx context.Context) (*workspace.Snapshot, error) {
	if s.k.full.Load() {
		return nil, sandbox.Errorf(sandbox.Exhausted, "too many files")
	}
	return s.Opened.Snapshot(ctx)
}

func (s uncountableSpace) Measure(ctx context.Context) (sandbox.WorkspaceUsage, error) {
	if s.k.full.Load() {
		return sandbox.WorkspaceUsage{}, sandbox.Errorf(sandbox.Exhausted, "too many files")
	}
	return s.Opened.Measure(ctx)
}
