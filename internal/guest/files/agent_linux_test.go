package files_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

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
	if diff := cmp.Diff(&guestapi.WriteInfo{Name: "f", Type: guestapi.TypeFile, Path: dir + "/f"}, info, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("with extensions (-want +got):\n%s", diff)
	}
}
