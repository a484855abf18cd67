package files_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/guesttest"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// An agentClient speaks E2B's protocol without extensions.
type agentClient struct {
	*guesttest.RawClient
	t *testing.T
}

func newAgentClient(t *testing.T, h *host) *agentClient {
	return &agentClient{guesttest.NewRawClient(t, &h.Host), t}
}

// call makes a unary call that succeeds.
func (c *agentClient) call(procedure string, in, out any) {
	c.t.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		c.t.Fatal(err)
	}
	status, answer := c.Post(procedure, guestapi.ContentTypeUnary, string(body))
	if status != http.StatusOK {
		c.t.Fatalf("%s: %d %s", procedure, status, answer)
	}
	if err := json.Unmarshal([]byte(answer), out); err != nil {
		c.t.Fatalf("%s: %v in %s", procedure, err, answer)
	}
}

func (c *agentClient) stat(path string) guestapi.Entry {
	c.t.Helper()
	var out guestapi.EntryResponse
	c.call(guestapi.FSStat, guestapi.PathRequest{Path: path}, &out)
	return out.Entry
}

// TestAgentLinks: clients without extensions get links as E2B's agent sends them.
func TestAgentLinks(t *testing.T) {
	h := newHost(t)
	c := newAgentClient(t, h)
	dir, err := filepath.EvalSymlinks(guesttest.UserDir(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	h.WriteText(dir+"/d/f", "text")
	if err := os.Chmod(dir+"/d/f", 0o640|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"file": "d/f", "twice": "file", "dir": dir + "/d", "none": "d/none", "loop": "loop"} {
		if err := os.Symlink(target, dir+"/"+name); err != nil {
			t.Fatal(err)
		}
	}
	var listed guestapi.ListDirResponse
	c.call(guestapi.FSListDir, guestapi.ListDirRequest{Path: dir, Depth: 2}, &listed)
	type link struct {
		Path, Target string
		Type         guestapi.FileType
		Mode         uint32
	}
	linkOf := func(e guestapi.Entry) link {
		return link{e.Path, e.SymlinkTarget, e.Type, e.Mode}
	}
	want := []link{
		{dir + "/d", "", guestapi.TypeDirectory, 0o755},
		{dir + "/d/f", "", guestapi.TypeFile, 0o640},
		{dir + "/dir", dir + "/d", guestapi.TypeDirectory, 0o755}, // listed, and not entered
		{dir + "/file", dir + "/d/f", guestapi.TypeFile, 0o640},
		{dir + "/loop", dir + "/loop", guestapi.TypeUnspecified, 0},
		{dir + "/none", dir + "/none", guestapi.TypeUnspecified, 0},
		{dir + "/twice", dir + "/d/f", guestapi.TypeFile, 0o640},
	}
	var got []link
	for _, e := range listed.Entries {
		got = append(got, linkOf(e))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	for _, w := range want {
		if diff := cmp.Diff(w, linkOf(c.stat(w.Path))); diff != "" {
			t.Errorf("stat (-want +got):\n%s", diff)
		}
	}
	// With extensions, a link stays a link.
	e, err := h.Stat(t.Context(), dir+"/file", noOpts)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(link{dir + "/file", "d/f", guestapi.TypeSymlink, 0o777}, linkOf(*e)); diff != "" {
		t.Errorf("with extensions (-want +got):\n%s", diff)
	}
}

// TestAgentRemovesMissing: E2B's clients remove a missing file with success.
func TestAgentRemovesMissing(t *testing.T) {
	h := newHost(t)
	c := newAgentClient(t, h)
	dir := guesttest.UserDir(t, "")
	h.WriteText(dir+"/f", "")
	for range 2 {
		c.call(guestapi.FSRemove, guestapi.PathRequest{Path: dir + "/f"}, &struct{}{})
	}
	if _, err := os.Lstat(dir + "/f"); !os.IsNotExist(err) {
		t.Errorf("the file is left: %v", err)
	}
}

// TestAgentWriteAnswer: the answer to a write has E2B's type of a file, and the
// program's own client gets the type of entries.
func TestAgentWriteAnswer(t *testing.T) {
	h := newHost(t)
	c := newAgentClient(t, h)
	dir := guesttest.UserDir(t, "")
	status, body := c.Post(guestapi.PathFiles+"?path="+dir+"/f", "application/octet-stream", "text")
	if want := fmt.Sprintf(`[{"name":"f","type":"file","path":"%s/f"}]`, dir); status != http.StatusOK || body != want {
		t.Errorf("%d %s, want %s", status, body, want)
	}
	info, err := h.Write(t.Context(), dir+"/f", http.NoBody, guestapi.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&guestapi.WriteInfo{Name: "f", Type: guestapi.TypeFile, Path: dir + "/f"}, info); diff != "" {
		t.Errorf("with extensions (-want +got):\n%s", diff)
	}
}

// TestAgentActsAsRoot: where the user's rights do not suffice, clients without
// extensions get root's, and the user gets what they make.
func TestAgentActsAsRoot(t *testing.T) {
	guesttest.NeedRoot(t)
	h := newHost(t)
	c := newAgentClient(t, h)
	dir, err := os.MkdirTemp("", "roots")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.WriteFile(dir+"/secret", []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	write := func(path, text string) (int, string) {
		return c.Post(guestapi.PathFiles+"?path="+path, "application/octet-stream", text)
	}
	for _, name := range []string{"/a/b/new", "/secret"} {
		for what, text := range bodies {
			if status, body := write(dir+name, text); status != http.StatusOK {
				t.Fatalf("%s, %s: %d %s", name, what, status, body)
			}
			resp, err := c.HTTP.Get("http://guest/files?path=" + dir + name)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || string(got) != text {
				t.Errorf("%s, %s: read %d bytes, %v; want %d", name, what, len(got), err, len(text))
			}
		}
	}
	var entry guestapi.EntryResponse
	c.call(guestapi.FSMakeDir, guestapi.PathRequest{Path: dir + "/c/d"}, &entry)
	c.call(guestapi.FSMove, guestapi.MoveRequest{Source: dir + "/secret", Destination: dir + "/e/secret"}, &entry)
	var listed guestapi.ListDirResponse
	c.call(guestapi.FSListDir, guestapi.ListDirRequest{Path: dir, Depth: 3}, &listed)
	type owned struct{ Path, Permissions, Owner string }
	var got []owned
	for _, e := range listed.Entries {
		got = append(got, owned{e.Path, e.Permissions, e.Owner})
	}
	user := c.stat(dir + "/a").Owner
	want := []owned{
		{dir + "/a", "drwxr-xr-x", user},
		{dir + "/a/b", "drwxr-xr-x", user},
		{dir + "/a/b/new", "-rw-r--r--", user},
		{dir + "/c", "drwxr-xr-x", user},
		{dir + "/c/d", "drwxr-xr-x", user},
		{dir + "/e", "drwxr-xr-x", user},
		{dir + "/e/secret", "-rw-------", "root"}, // a file keeps its owner
	}
	if diff := cmp.Diff(want, got); diff != "" || user == "root" {
		t.Errorf("files of %s (-want +got):\n%s", user, diff)
	}
	c.call(guestapi.FSRemove, guestapi.PathRequest{Path: dir + "/e"}, &struct{}{})
	var made guestapi.CreateWatcherResponse
	c.call(guestapi.FSCreateWatcher, guestapi.WatchDirRequest{Path: dir, Recursive: true}, &made)
	if err := os.MkdirAll(dir+"/late", 0o700); err != nil {
		t.Fatal(err)
	}
	if status, body := write(dir+"/late/f", ""); status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	var events []guestapi.FilesystemEvent
	guesttest.Eventually(t, "the file in root's directory is reported", func() bool {
		var more guestapi.GetWatcherEventsResponse
		c.call(guestapi.FSGetWatcherEvents, guestapi.WatcherRequest(made), &more)
		events = append(events, more.Events...)
		return slices.ContainsFunc(events, func(e guestapi.FilesystemEvent) bool { return e.Name == "late/f" })
	})
	c.call(guestapi.FSRemoveWatcher, guestapi.WatcherRequest(made), &struct{}{})
	// Root cannot write where nothing can be written.
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_RDONLY, ""); err != nil {
		t.Skip("cannot mount: ", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	if status, body := write(dir+"/f", ""); status != http.StatusForbidden || !strings.Contains(body, "read-only") {
		t.Errorf("%d %s", status, body)
	}
}
