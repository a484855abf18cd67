package files_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/files"
	"github.com/glovebox-dev/glovebox/internal/guest/guesttest"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

type metadata = map[string]string

// write writes a file with metadata, and returns the status and the body of the
// answer.
func (c *agentClient) write(path, text string, m metadata) (int, string) {
	c.t.Helper()
	return c.upload("?path="+path, "application/octet-stream", strings.NewReader(text), m)
}

func (c *agentClient) upload(query, contentType string, body io.Reader, m metadata) (int, string) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, "http://guest"+guestapi.PathFiles+query, body)
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	for key, value := range m {
		req.Header.Set(guestapi.MetadataPrefix+key, value)
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

// metadataDir makes a directory on a file system that keeps metadata.
func metadataDir(t *testing.T) string {
	t.Helper()
	dir := guesttest.UserDir(t, "")
	if err := unix.Setxattr(dir, "user.test", nil, 0); err == unix.EOPNOTSUPP {
		t.Skip("the file system has no extended attributes")
	}
	return dir
}

func TestMetadata(t *testing.T) {
	h := newHost(t)
	c := newAgentClient(t, h)
	dir := metadataDir(t)
	want := func(path string, m metadata) {
		t.Helper()
		if diff := cmp.Diff(m, c.stat(path).Metadata); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
	both := metadata{"author": "a", "note": "a b=c"}
	for what, text := range bodies {
		status, answer := c.write(dir+"/f", text, metadata{"Author": "a", "NOTE": "a b=c"})
		if want := fmt.Sprintf(`[{"name":"f","type":"file","path":"%s/f","metadata":{"author":"a","note":"a b=c"}}]`, dir); status != http.StatusOK || answer != want {
			t.Errorf("%s: %d %s, want %s", what, status, answer, want)
		}
		want(dir+"/f", both)
		// A write replaces all.
		if status, answer := c.write(dir+"/f", text, metadata{"note": "other"}); status != http.StatusOK {
			t.Errorf("%s: %d %s", what, status, answer)
		}
		want(dir+"/f", metadata{"note": "other"})
		h.WriteText(dir+"/f", text)
		want(dir+"/f", nil)
	}
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for _, name := range []string{"/one", "/two"} {
		w, err := form.CreateFormFile("file", dir+name)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, name)
	}
	form.Close()
	if status, answer := c.upload("", form.FormDataContentType(), &body, both); status != http.StatusOK {
		t.Fatalf("%d %s", status, answer)
	}
	// A move keeps it, and attributes that are not metadata stay unseen.
	for name, value := range map[string]string{"user.e2b.set": "by a program", "user.other": "x", "user.e2b.bad": "\xff", "user.e2b.long": strings.Repeat("x", 4096)} {
		if err := unix.Setxattr(dir+"/two", name, []byte(value), 0); err != nil && err != unix.ENOSPC { // an inode may have less room
			t.Fatal(err)
		}
	}
	var moved guestapi.EntryResponse
	c.call(guestapi.FSMove, guestapi.MoveRequest{Source: dir + "/two", Destination: dir + "/three"}, &moved)
	three := maps.Clone(both)
	three["set"] = "by a program"
	if diff := cmp.Diff(three, moved.Entry.Metadata); diff != "" {
		t.Errorf("moved (-want +got):\n%s", diff)
	}
	if err := os.Symlink("one", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	var listed guestapi.ListDirResponse
	c.call(guestapi.FSListDir, guestapi.ListDirRequest{Path: dir}, &listed)
	got := map[string]metadata{}
	for _, e := range listed.Entries {
		got[e.Name] = e.Metadata
	}
	if diff := cmp.Diff(map[string]metadata{"f": nil, "link": both, "one": both, "three": three}, got); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	// With extensions, entries are as they were.
	e, err := h.Stat(t.Context(), dir+"/one", noOpts)
	if err != nil || e.Metadata != nil {
		t.Errorf("with extensions: %+v, %v", e, err)
	}
}

func TestMetadataRefuses(t *testing.T) {
	h := newHost(t)
	c := newAgentClient(t, h)
	dir := metadataDir(t)
	full := metadata{}
	for i := range 4 {
		full[fmt.Sprint("k", i)] = strings.Repeat("x", 1013) // 4096 bytes with the attributes' names
	}
	for what, m := range map[string]metadata{
		"a long key":      {strings.Repeat("k", 247): ""},
		"not ASCII":       {"k": "é"},
		"too much at all": {"k0": full["k0"], "k1": full["k1"], "k2": full["k2"], "k3": full["k3"] + "x"},
	} {
		if status, answer := c.write(dir+"/f", "x", m); status != http.StatusBadRequest || !strings.Contains(answer, "metadata: ") {
			t.Errorf("%s: %d %s", what, status, answer)
		}
	}
	if _, err := os.Stat(dir + "/f"); !os.IsNotExist(err) {
		t.Errorf("a refused write made a file: %v", err)
	}
	if status, answer := c.write(dir+"/f", "x", full); status == http.StatusBadRequest {
		t.Errorf("the most that is allowed: %d %s", status, answer)
	}
	// A file system without attributes refuses metadata, and keeps the file.
	guesttest.NeedRoot(t)
	if err := unix.Mount("ramfs", dir, "ramfs", 0, "mode=777"); err != nil {
		t.Skip("cannot mount: ", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	h.WriteText(dir+"/old", "old")
	for _, name := range []string{"/old", "/new"} {
		if status, answer := c.write(dir+name, "x", metadata{"k": "v"}); status != http.StatusNotImplemented || !strings.Contains(answer, "without metadata") {
			t.Errorf("%s: %d %s", name, status, answer)
		}
	}
	if _, err := os.Stat(dir + "/new"); !os.IsNotExist(err) || h.ReadText(dir+"/old") != "old" {
		t.Errorf("a refused write changed a file: %v", err)
	}
}

// TestWatchEntries: events have the entries of their files if a client asks.
func TestWatchEntries(t *testing.T) {
	h := newHost(t)
	c := newAgentClient(t, h)
	dir := guesttest.UserDir(t, "")
	for _, include := range []bool{true, false} {
		var made guestapi.CreateWatcherResponse
		c.call(guestapi.FSCreateWatcher, guestapi.WatchDirRequest{Path: dir, IncludeEntry: include}, &made)
		h.WriteText(dir+"/f", "text")
		h.WriteText(dir+"/stays", "")
		var events []guestapi.FilesystemEvent
		seen := func(what guestapi.EventType, name string) func() bool {
			return func() bool {
				var more guestapi.GetWatcherEventsResponse
				c.call(guestapi.FSGetWatcherEvents, guestapi.WatcherRequest(made), &more)
				events = append(events, more.Events...)
				return slices.ContainsFunc(events, func(e guestapi.FilesystemEvent) bool { return e.Name == name && e.Type == what })
			}
		}
		guesttest.Eventually(t, "the last file is made", seen(guestapi.EventCreate, "stays"))
		if err := os.Remove(dir + "/f"); err != nil {
			t.Fatal(err)
		}
		guesttest.Eventually(t, "the file is removed", seen(guestapi.EventRemove, "f"))
		for _, e := range events {
			present := include && e.Type != guestapi.EventRemove
			if (e.Entry != nil) != present {
				t.Errorf("with entries %v: %+v has the entry %+v", include, e, e.Entry)
			} else if present && (e.Entry.Path != dir+"/"+e.Name || e.Entry.Type != guestapi.TypeFile || e.Entry.Permissions != "-rw-r--r--") {
				t.Errorf("%+v has the entry %+v", e, e.Entry)
			}
		}
		c.call(guestapi.FSRemoveWatcher, guestapi.WatcherRequest(made), &struct{}{})
		os.Remove(dir + "/stays")
	}
}

// TestWatchEntriesAreBounded: entries that take more memory than a watch may hold
// end it before the number of events does.
func TestWatchEntriesAreBounded(t *testing.T) {
	h := newHost(t)
	c := newAgentClient(t, h)
	dir := metadataDir(t)
	for i := range 2 {
		if status, answer := c.write(fmt.Sprint(dir, "/", i), "", metadata{"k": strings.Repeat("x", 3500)}); status != http.StatusOK {
			t.Skipf("%d %s", status, answer)
		}
	}
	var made guestapi.CreateWatcherResponse
	c.call(guestapi.FSCreateWatcher, guestapi.WatchDirRequest{Path: dir, IncludeEntry: true}, &made)
	ask, err := json.Marshal(guestapi.WatcherRequest(made))
	if err != nil {
		t.Fatal(err)
	}
	for i := range files.MaxWatchEvents * 3 / 4 { // in turns: like events are merged
		if err := os.Chmod(fmt.Sprint(dir, "/", i%2), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	status, body := c.Post(guestapi.FSGetWatcherEvents, guestapi.ContentTypeUnary, string(ask))
	if status != http.StatusOK || len(body) > 64<<20 {
		t.Errorf("%d, with %d bytes", status, len(body))
	}
	status, body = c.Post(guestapi.FSGetWatcherEvents, guestapi.ContentTypeUnary, string(ask))
	if status != http.StatusTooManyRequests || !strings.Contains(body, "bytes of them") {
		t.Errorf("%d %.1000s", status, body)
	}
}

// TestWatchNetworkMounts: E2B's clients watch file systems of other machines only
// if they say so.
func TestWatchNetworkMounts(t *testing.T) {
	guesttest.NeedRoot(t)
	h := newHost(t)
	c := newAgentClient(t, h)
	dir := guesttest.UserDir(t, "")
	device, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { device.Close() })
	// Other users' requests are refused without an answer of a server.
	if err := unix.Mount("test", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=4321,group_id=4321", device.Fd())); err != nil {
		t.Skip("cannot mount: ", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	for _, tt := range []struct {
		more string
		want int
		text string
	}{
		{"", http.StatusBadRequest, "network file system"},
		{`,"allowNetworkMounts":true`, http.StatusForbidden, "permission denied"},
	} {
		status, body := c.Post(guestapi.FSCreateWatcher, guestapi.ContentTypeUnary, fmt.Sprintf(`{"path":%q%s}`, dir, tt.more))
		if status != tt.want || !strings.Contains(body, tt.text) {
			t.Errorf("%s: %d %s", tt.more, status, body)
		}
	}
}
