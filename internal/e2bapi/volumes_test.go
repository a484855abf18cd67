package e2bapi

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/workspace"
)

// A fakeVolume is a workspace without an engine.
type fakeVolume struct {
	*workspace.Workspace
	e     *fakeEngine
	owner sandbox.Principal
	name  string
}

func (v *fakeVolume) Owner() sandbox.Principal { return v.owner }
func (v *fakeVolume) Name() string             { return v.name }
func (v *fakeVolume) Release()                 { v.e.open-- }

func (v *fakeVolume) Content(_ context.Context, name string) (io.ReadSeekCloser, fs.FileInfo, error) {
	f, info, err := v.Read(name)
	if err != nil {
		return nil, nil, err
	}
	return f, info, nil
}

func (v *fakeVolume) Put(ctx context.Context, name string, r io.Reader, _ int64) (int64, error) {
	return v.Write(ctx, name, r)
}

func (v *fakeVolume) MakeDir(_ context.Context, name string, parents bool) error {
	return v.Workspace.MakeDir(name, parents)
}

func (v *fakeVolume) SetAttributes(_ context.Context, name string, a sandbox.VolumeAttributes) error {
	return v.Workspace.SetAttributes(name, a)
}

func (v *fakeVolume) Delete(_ context.Context, name string) error { return v.Workspace.Delete(name) }

// newVolumes returns a server whose principals may have volumes.
func newVolumes(t *testing.T, change ...func(*Options)) (*fakeEngine, *httptest.Server) {
	t.Helper()
	e, s, srv := newTest(t)
	for _, c := range change {
		c(&s.opts)
	}
	set, err := workspace.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	e.volumes, e.spaces = map[string]*fakeVolume{}, set
	t.Cleanup(func() {
		for _, v := range e.volumes {
			if err := v.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := set.Close(); err != nil {
			t.Error(err)
		}
		if e.open != 0 {
			t.Errorf("%d volumes were not released", e.open)
		}
	})
	return e, srv
}

func (e *fakeEngine) Volume(_ context.Context, handle string) (Volume, error) {
	if v := e.volumes[handle]; v != nil {
		e.open++
		return v, nil
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "no workspace")
}

func (e *fakeEngine) Workspaces(_ context.Context, p sandbox.Principal) ([]sandbox.Workspace, error) {
	var list []sandbox.Workspace
	for _, v := range e.volumes {
		if v.owner == p {
			list = append(list, sandbox.Workspace{Name: v.name})
		}
	}
	return list, nil
}

func (e *fakeEngine) WorkspaceOf(_ context.Context, p sandbox.Principal, name string) (id, handle string, err error) {
	for handle, v := range e.volumes {
		if v.owner == p && v.name == name {
			return string(v.ID), handle, nil
		}
	}
	return "", "", sandbox.Errorf(sandbox.NotFound, "no workspace")
}

func (e *fakeEngine) MakeWorkspace(_ context.Context, p sandbox.Principal, name string) (string, error) {
	id := workspace.NewID()
	if _, err := e.spaces.Make(id); err != nil {
		return "", err
	}
	w, err := e.spaces.Open(id)
	if err != nil {
		return "", err
	}
	e.volumes[id.Handle()] = &fakeVolume{w, e, p, name}
	return "", nil
}

func (e *fakeEngine) DeleteWorkspace(ctx context.Context, p sandbox.Principal, name string) error {
	_, handle, err := e.WorkspaceOf(ctx, p, name)
	if err != nil {
		return err
	}
	v := e.volumes[handle]
	delete(e.volumes, handle)
	return v.Close()
}

func (e *fakeEngine) StatFile(_ context.Context, _ sandbox.Principal, _, path string) (sandbox.File, error) {
	for _, f := range e.files {
		if f == path {
			return sandbox.File{Path: f}, nil
		}
	}
	return sandbox.File{}, sandbox.Errorf(sandbox.NotFound, "no file")
}

func (e *fakeEngine) Unpack(_ context.Context, _ sandbox.Principal, _ string, r io.Reader, to sandbox.UnpackTo) error {
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		e.unpacked = append(e.unpacked, fmt.Sprintf("%s%s -> %s", to.Path, h.Name, h.Linkname))
	}
}

// create makes a volume and returns its ID and its token.
func create(t *testing.T, url, name, who string) (id, token string) {
	t.Helper()
	status, _, body := do(t, "POST", url+"/volumes", fmt.Sprintf(`{"name":%q}`, name), "X-API-KEY", who)
	var in volumeInfo
	if err := json.Unmarshal([]byte(body), &in); err != nil || status != 201 || in.Name != name || in.Domain == "" {
		t.Fatalf("status %d, %v: %s", status, err, body)
	}
	return in.VolumeID, in.Token
}

// TestVolumes makes, lists, shows and removes volumes of two principals.
func TestVolumes(t *testing.T) {
	_, srv := newVolumes(t)
	id, token := create(t, srv.URL, "data_1", "alice")
	create(t, srv.URL, "data_1", "mallory")
	for name, tt := range map[string]struct {
		method, path, body, who string
		want                    int
		has                     string
	}{
		"again":               {"POST", "/volumes", `{"name":"data_1"}`, "alice", 409, "exists"},
		"a bad name":          {"POST", "/volumes", `{"name":"a b"}`, "alice", 400, "name"},
		"no name":             {"POST", "/volumes", ``, "alice", 400, "name"},
		"too few scopes":      {"POST", "/volumes", `{"name":"x"}`, "Runner", 403, "scopes"},
		"list":                {"GET", "/volumes", "", "alice", 200, fmt.Sprintf(`[{"volumeID":%q,"name":"data_1"}]`, id)},
		"show":                {"GET", "/volumes/" + id, "", "alice", 200, `"token":"` + token + `"`},
		"another's":           {"GET", "/volumes/" + id, "", "mallory", 404, "no volume"},
		"to remove another's": {"DELETE", "/volumes/" + id, "", "mallory", 404, "no volume"},
		"none":                {"GET", "/volumes/x", "", "alice", 404, "no volume"},
		"a sandbox with none": {"POST", "/sandboxes", `{"volumeMounts":[{"name":"no","path":"/mnt/x"}]}`, "alice", 404, "no volume"},
	} {
		status, _, body := do(t, tt.method, srv.URL+tt.path, tt.body, "X-API-KEY", tt.who)
		if status != tt.want || !strings.Contains(body, tt.has) {
			t.Errorf("%s: status %d: %s", name, status, body)
		}
	}
	if status, _, body := do(t, "DELETE", srv.URL+"/volumes/"+id, "", "X-API-KEY", "alice"); status != 204 || body != "" {
		t.Errorf("remove: status %d: %s", status, body)
	}
	if status, _, _ := do(t, "GET", srv.URL+"/volumecontent/"+id+"/path?path=/", "", "Authorization", "Bearer "+token); status != 404 {
		t.Errorf("a removed volume: status %d", status)
	}
}

// TestVolumeContent uses the files of a volume, in the form of the SDKs' requests.
func TestVolumeContent(t *testing.T) {
	_, srv := newVolumes(t)
	id, token := create(t, srv.URL, "v", "alice")
	other, _ := create(t, srv.URL, "v", "mallory")
	call := func(method, what, body string) (int, http.Header, string) {
		t.Helper()
		return do(t, method, srv.URL+"/volumecontent/"+id+"/"+what, body, "Authorization", "Bearer "+token)
	}
	for _, tt := range []struct {
		method, what, body string
		want               int
		has                string // in the answer
	}{
		{"PUT", "file?path=/a/b.txt&mode=384", "hello", 201, `"name":"b.txt","type":"file","path":"/a/b.txt","size":5,"mode":384,"uid":1000,"gid":1000,"atime":"`},
		{"GET", "file?path=a/b.txt", "", 200, "hello"},
		{"PUT", "file?path=/a/b.txt&force=false", "no", 409, "force"},
		{"PUT", "file?path=/a/b.txt&force=true", "", 201, `"size":0`},
		{"GET", "file?path=/a/b.txt", "", 200, ""},
		{"PUT", "file?path=/a/b.txt", "again", 201, `"size":5`},
		{"GET", "file?path=/no", "", 404, "no such file"},
		{"GET", "file?path=/a", "", 400, "directory"},
		{"PUT", "file?path=/a", "x", 400, "directory"},
		{"PUT", "file?path=/../x", "x", 400, ".."},
		{"PUT", "file?path=/x&mode=x", "x", 400, "mode"},
		{"PUT", "file?path=/x&mode=2541", "x", 400, "mode"},
		{"PUT", "file?path=/x&uid=-1", "x", 400, "uid"},
		{"PUT", "file?path=/x&force=x", "x", 400, "force"},
		{"PUT", "file", "x", 400, "path"},
		{"POST", "dir?path=/d&mode=448", "", 201, `"type":"directory","path":"/d"`},
		{"POST", "dir?path=/d", "", 409, "exists"},
		{"POST", "dir?path=/d&force=true", "", 201, `"mode":448`},
		{"POST", "dir?path=/n/m", "", 404, "no such file"},
		{"POST", "dir?path=/n/m&force=true", "", 201, `"path":"/n/m"`},
		{"GET", "path?path=/n", "", 200, `"name":"n","type":"directory"`},
		{"GET", "path?path=/", "", 200, `"path":"/"`},
		{"GET", "path?path=/none", "", 404, "no such file"},
		{"GET", "path", "", 400, "path"},
		{"PATCH", "path?path=/a/b.txt", `{"mode":420,"uid":1000}`, 200, `"mode":420`},
		{"PATCH", "path?path=/a/b.txt", `{"mode":99999}`, 400, "mode"},
		{"PATCH", "path?path=/none", `{"mode":420}`, 404, "no such file"},
		{"GET", "dir?path=/none", "", 404, "no such file"},
		{"GET", "dir?path=/&depth=x", "", 400, "depth"},
		{"DELETE", "path?path=/none", "", 404, "no such file"},
		{"DELETE", "path?path=/", "", 400, "itself"},
		{"DELETE", "path?path=/n", "", 204, ""},
		{"GET", "path?path=/n/m", "", 404, "no such file"},
	} {
		status, _, body := call(tt.method, tt.what, tt.body)
		if status != tt.want || !strings.Contains(body, tt.has) {
			t.Errorf("%s %s: status %d: %s; want %d with %s", tt.method, tt.what, status, body, tt.want, tt.has)
		}
	}
	for what, want := range map[string][]string{
		"dir?path=/":         {"/a", "/d"},
		"dir?path=/&depth=2": {"/a", "/a/b.txt", "/d"},
		"dir?path=/a":        {"/a/b.txt"},
		"dir?path=/d":        {},
	} {
		_, _, body := call("GET", what, "")
		var list []volumeEntry
		if err := json.Unmarshal([]byte(body), &list); err != nil {
			t.Fatalf("%s: %v: %s", what, err, body)
		}
		got := []string{}
		for _, f := range list {
			got = append(got, f.Path)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	_, h, _ := call("GET", "file?path=/a/b.txt", "")
	if h.Get("Content-Type") != "application/octet-stream" || h.Get("Content-Disposition") != "attachment" || h.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("a browser would show the file: %v", h)
	}
	for name, headers := range map[string][]string{
		"no token":              nil,
		"an API key":            {"Authorization", "Bearer alice"},
		"an API key, too":       {"X-API-KEY", "alice", "Authorization", "Bearer x"},
		"another's token":       {"Authorization", "Bearer access-volume " + other},
		"a sandbox's token":     {"Authorization", "Bearer access-" + id},
		"none of a removed one": {"Authorization", "Bearer access-volume x"},
	} {
		if status, _, body := do(t, "GET", srv.URL+"/volumecontent/"+id+"/path?path=/", "", headers...); status != 401 {
			t.Errorf("%s: status %d: %s", name, status, body)
		}
	}
}

// TestVolumeMounts makes sandboxes with volumes.
func TestVolumeMounts(t *testing.T) {
	e, srv := newVolumes(t)
	create(t, srv.URL, "v", "alice")
	e.files = []string{"/etc"}
	make := func(mounts string) (int, string) {
		t.Helper()
		status, _, body := do(t, "POST", srv.URL+"/v2/sandboxes", `{"volumeMounts":`+mounts+`}`, "X-API-KEY", "alice")
		return status, body
	}
	for mounts, want := range map[string]int{
		`[{"name":"v","path":"/mnt/v"},{"name":"v","path":"/mnt/w"}]`: 501, // the driver mounts one workspace
		`[{"name":"v","path":"mnt"}]`:                                 400,
		`[{"name":"v","path":"/"}]`:                                   400,
		`[{"name":"v","path":"/mnt/"}]`:                               400,
		`[{"name":"v","path":"/mnt/../x"}]`:                           400,
		`[{"name":"v","path":"/proc/x"}]`:                             400,
		`[{"name":"v","path":"/data/x"}]`:                             400,
		`[{"name":"","path":"/mnt"}]`:                                 400,
		`[{"name":"no","path":"/mnt"}]`:                               404,
	} {
		if status, body := make(mounts); status != want || !strings.Contains(body, "volumeMounts") {
			t.Errorf("%s: status %d: %s", mounts, status, body)
		}
	}
	if len(e.boxes) != 0 {
		t.Fatalf("%d sandboxes were made", len(e.boxes))
	}
	status, body := make(`[{"name":"v","path":"/etc"}]`)
	if status != 400 || !strings.Contains(body, "exists in the image") {
		t.Errorf("status %d: %s", status, body)
	}
	for _, b := range e.boxes {
		if b.State != sandbox.Stopped {
			t.Errorf("the refused sandbox is %s", b.State)
		}
	}
	for path, want := range map[string][]string{"/data": nil, "/mnt/my-data": {"/mnt/my-data -> /data"}} {
		e.unpacked = nil
		status, body := make(fmt.Sprintf(`[{"name":"v","path":%q}]`, path))
		if status != 201 || e.created.Workspace != "v" {
			t.Fatalf("status %d: %s; workspace %q", status, body, e.created.Workspace)
		}
		if diff := cmp.Diff(want, e.unpacked); diff != "" {
			t.Error(diff)
		}
		var in sandboxAnswer
		if err := json.Unmarshal([]byte(body), &in); err != nil {
			t.Fatal(err)
		}
		_, _, body = do(t, "GET", srv.URL+"/sandboxes/"+in.SandboxID, "", "X-API-KEY", "alice")
		if !strings.Contains(body, fmt.Sprintf(`"volumeMounts":[{"name":"v","path":%q}]`, path)) || strings.Contains(body, labelVolume) {
			t.Errorf("info: %s", body)
		}
	}
}

// TestSeveralVolumes makes sandboxes with several volumes, where the driver mounts
// each at its own path.
func TestSeveralVolumes(t *testing.T) {
	e, srv := newVolumes(t, func(o *Options) { o.Mounts = true })
	create(t, srv.URL, "v", "alice")
	create(t, srv.URL, "w", "alice")
	e.files = []string{"/etc"}
	make := func(mounts string) (int, string) {
		t.Helper()
		e.created = sandbox.CreateRequest{}
		status, _, body := do(t, "POST", srv.URL+"/v2/sandboxes", `{"volumeMounts":`+mounts+`}`, "X-API-KEY", "alice")
		return status, body
	}
	for mounts, want := range map[string]int{
		`[{"name":"v","path":"/mnt/v"},{"name":"w","path":"/mnt/v"}]`:                      400,
		`[{"name":"v","path":"/mnt/v"},{"name":"w","path":"/mnt/v/w"}]`:                    400,
		`[{"name":"v","path":"/mnt/v/w"},{"name":"w","path":"/mnt/v"}]`:                    400,
		`[{"name":"v","path":"/mnt/v"},{"name":"w","path":"/proc/w"}]`:                     400,
		`[{"name":"v","path":"/mnt/v"},{"name":"no","path":"/mnt/w"}]`:                     404,
		`[` + strings.Repeat(`{"name":"v","path":"/x"},`, 8) + `{"name":"v","path":"/y"}]`: 400,
	} {
		if status, body := make(mounts); status != want || !strings.Contains(body, "volumeMounts") {
			t.Errorf("%s: status %d: %s", mounts, status, body)
		}
	}
	if len(e.boxes) != 0 {
		t.Fatalf("%d sandboxes were made", len(e.boxes))
	}
	for mounts, want := range map[string]struct {
		workspace string
		volumes   []sandbox.Volume
		shown     string
	}{
		`[{"name":"v","path":"/mnt/v"},{"name":"w","path":"/etc"}]`: {
			"v", []sandbox.Volume{{Workspace: "v", Path: "/mnt/v"}, {Workspace: "w", Path: "/etc"}}, "",
		},
		`[{"name":"v","path":"/mnt/v"},{"name":"w","path":"/data"}]`: {
			"w", []sandbox.Volume{{Workspace: "v", Path: "/mnt/v"}}, `[{"name":"w","path":"/data"},{"name":"v","path":"/mnt/v"}]`,
		},
		`[{"name":"v","path":"/data"}]`: {"v", nil, ""},
	} {
		status, body := make(mounts)
		if status != 201 || e.created.Workspace != want.workspace {
			t.Errorf("%s: status %d: %s; workspace %q", mounts, status, body, e.created.Workspace)
			continue
		}
		if diff := cmp.Diff(want.volumes, e.created.Volumes); diff != "" {
			t.Errorf("%s: volumes, -want +got\n%s", mounts, diff)
		}
		if e.unpacked != nil {
			t.Errorf("%s: links were made: %q", mounts, e.unpacked)
		}
		var in sandboxAnswer
		if err := json.Unmarshal([]byte(body), &in); err != nil {
			t.Fatal(err)
		}
		if want.shown == "" {
			want.shown = mounts
		}
		_, _, body = do(t, "GET", srv.URL+"/sandboxes/"+in.SandboxID, "", "X-API-KEY", "alice")
		if !strings.Contains(body, `"volumeMounts":`+want.shown) || strings.Contains(body, labelVolume) {
			t.Errorf("%s: info: %s", mounts, body)
		}
	}
}
