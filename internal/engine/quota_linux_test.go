package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
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
	if w.Usage.Bytes > 32*mib+workspaceSlack {
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
		_, err := e.Forward(alice, s.ID, "~", uploadForm(t, fakeDir(t, e, s)+"/big", 200*mib))
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
			resp, err := e.Forward(alice, s.ID, "~", upload(context.Background(), name, 2<<40))
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
		resp, err := e.Forward(alice, s.ID, "~", req)
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
